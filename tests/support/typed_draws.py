"""Topologies of typed graphs, and samplers that draw from them."""

import numpy as np

from leapmpi.config.options import SAMPLERS, parse_options
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType, relation_dtype
from leapmpi.dataset.topology import Topology
from leapmpi.sampling.relation_lists import relation_fanouts
from leapmpi.sampling.sampler import Setup
from tests.support.kinds import KINDS, SEED, time_of

FANOUTS = (4, 3)
TYPED = [kind for kind in KINDS if SAMPLERS.load(kind.partition(",")[0]).typed]

SCHOLARS = GraphTypes(
    (VertexType("paper", 60), VertexType("author", 40), VertexType("field", 5)),
    (
        Relation("author", "writes", "paper"),
        Relation("paper", "cites", "paper"),
        Relation("paper", "written_by", "author", 0),
        Relation("field", "names", "paper"),
        Relation("author", "reviews", "paper"),
        Relation("author", "heads", "field"),
    ),
    "paper",
)


def typed_topology(types: GraphTypes, edges: int, seed: int, new_id: np.ndarray | None = None) -> Topology:
    """A random topology with up to `edges` edges of each relation; vertex v is called new_id[v]."""
    random = np.random.default_rng(seed)
    n = int(types.bases[-1])
    new_id = np.arange(n) if new_id is None else new_id
    found = []
    for r, (s, d) in enumerate(types.ends.tolist()):
        ends = [random.integers(types.bases[t], types.bases[t + 1], edges) for t in (s, d)]
        found.append(np.stack([ends[1], np.full(edges, r), ends[0]], axis=1))
    rows = np.unique(np.concatenate(found), axis=0)
    rows = rows[rows[:, 0] != rows[:, 2]]
    times = time_of(rows[:, 2], rows[:, 0])
    order = np.lexsort((rows[:, 2], rows[:, 1], new_id[rows[:, 0]]))
    rows, times = rows[order], times[order]
    indptr = np.searchsorted(new_id[rows[:, 0]], np.arange(n + 1)).astype(np.int64)
    weight = (1 + rows.sum(axis=1) % 7).astype(np.float32)
    return Topology(
        indptr,
        new_id[rows[:, 2]].astype(np.int32),
        np.argsort(new_id),
        edge_weight=weight,
        weight_sum=np.add.reduceat(np.append(weight, 0.0), indptr[:-1]) * (np.diff(indptr) > 0),
        edge_time=times,
        vertex_time=np.full(n, 80),
        relation=rows[:, 1].astype(relation_dtype(len(types.relations))),
        types=types,
    )


def made(kind: str, topology: Topology, fanouts=FANOUTS, threads=1, options=(), relation_fanout=()):
    name = kind.partition(",")[0]
    member = SAMPLERS.load(name)
    given = relation_fanouts(topology.types, fanouts, relation_fanout) if topology.types else None
    setup = Setup(topology, fanouts, np.arange(topology.vertices), SEED, threads, given)
    return member.build(setup, parse_options(member.options, options or KINDS[kind], name))
