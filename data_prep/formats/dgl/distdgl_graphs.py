"""Makes the graphs of DistDGL's partitions readable where DGL is not installed. Run it where DGL is:

    python distdgl_graphs.py FOLDER/NAME.json

It writes part0/graph.npz beside part0/graph.dgl and so on: the edges that each part owns, in DistDGL's numbers of
vertices, in the order of its numbers of edges. This file needs nothing of leapmpi.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np


def convert(config: Path) -> None:
    """Write a graph.npz for every part that `config`, the JSON file of the partitions, names."""
    import dgl

    about = json.loads(config.read_text())
    for part in range(about["num_parts"]):
        place = config.parent / about[f"part-{part}"]["part_graph"]
        graph = dgl.load_graphs(str(place))[0][0]

        # Edges whose destination another part owns are in the halo.
        kept = graph.edata["inner_edge"].bool()
        edges = graph.edata[dgl.EID][kept]
        order = edges.argsort()
        vertices = graph.ndata[dgl.NID]
        source, destination = (vertices[end.long()][kept][order].numpy() for end in graph.edges(order="eid"))

        # Whole or not at all.
        target, aside = place.with_suffix(".npz"), place.with_suffix(".partial.npz")
        np.savez(aside, source=source, destination=destination, edge=edges[order].numpy())
        os.replace(aside, target)
        print(f"{target}: {len(source):,} edges")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="the JSON file of the partitions")
    convert(parser.parse_args().config)
