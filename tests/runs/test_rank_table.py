"""Lists of ranks, and the table that a run starts with, on few ranks and on many."""

from leapmpi.runs.text import rank_table, ranks_text

MIB = 1 << 20


def facts(ranks, per_node, **changes):
    """The facts about the ranks of a job, two parts each."""
    return [
        {
            "host": f"node{rank // per_node}", "node": rank // per_node, "device": f"cuda:{rank % per_node} H200",
            "parts": [2 * rank, 2 * rank + 1], "features": MIB, "memory": 3 * MIB, "free": 10 * MIB, "threads": 4,
        }
        | changes
        for rank in range(ranks)
    ]  # fmt: skip


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_numbers_of_ranks_are_shown_as_spans():
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([7, 0, 1, 2, 5, 5]) == "ranks 0-2, 5, 7"


def test_few_ranks_have_a_row_each():
    head, *rows = rank_table(facts(4, 2))
    assert cells(head) == ["rank", "host", "device", "threads", "parts", "features", "memory", "free on host"]
    assert cells(rows[2]) == ["2", "node1", "cuda:0 H200", "4", "4-5", "1.0 MiB", "3.0 MiB", "10.0 MiB"]
    assert len(rows) == 4
    assert cells(rank_table(facts(1, 1, parts=[3, 3], free=None))[1])[4:] == ["3", "1.0 MiB", "3.0 MiB", "unknown"]


def test_many_ranks_share_a_row_per_node():
    several = facts(32, 8)
    several[9]["threads"] = 2
    _, *rows = rank_table(several)
    assert len(rows) == 4
    devices = "cuda:0 H200 ... cuda:7 H200"
    assert cells(rows[1]) == ["8-15", "node1", devices, "2-4", "16-31", "8.0 MiB", "24.0 MiB", "10.0 MiB"]


def test_of_many_nodes_the_fullest_is_among_those_shown():
    many = facts(800, 4)
    for rank in range(480, 484):
        many[rank]["free"] = MIB
    lines = rank_table(many)
    assert len(lines) == 1 + 16 + 1
    assert [cells(line)[1] for line in lines[1:15]] == [f"node{number}" for number in range(14)]
    assert cells(lines[15])[:2] == ["480-483", "node120"]
    assert lines[16] == "... and 184 more nodes; metrics.jsonl lists all ranks"
    assert cells(lines[17])[1] == "node199"
