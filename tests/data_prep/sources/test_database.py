"""Tables with keys and times: rows to vertices, foreign keys to relations, labels and splits by time."""

import json
import sqlite3
from datetime import UTC, datetime

import numpy as np
import pytest

from leapmpi.dataset.partitioned import open_dataset

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

DAY = 86_400
SCHEMA = """
[tables.customers]
primary_key = "id"
time = "joined"
columns.age = "standard"
columns.country = "one-hot"

[tables.orders]
primary_key = ["shop", "number"]
time = "at"
foreign_keys.customer = "customers"
columns.price = "log"

[tables.items]
foreign_keys.order = {columns = ["shop", "number"], table = "orders"}
foreign_keys.replaces = "products"
foreign_keys.product = "products"

[tables.products]
primary_key = "sku"
columns.kind = "learned"

[tasks.churn]
foreign_keys.customer = "customers"
time = "asked"
label = "churned"
train_until = 1970-01-21
val_until = 1970-01-31
columns.asked = "date"
"""


def tables():
    """Five tables with each fault once: a dangling key, a key that stands twice, a missing key, a row without time."""
    stamp = pyarrow.timestamp("us")
    return {
        "customers": {
            "id": [10, 2**40, 30, 2**40],
            "joined": pyarrow.array([1 * DAY * 10**6, 2 * DAY * 10**6, None, 4 * DAY * 10**6], stamp),
            "age": [20.0, 40.0, None, 1e9],
            "country": ["DE", "FR", "DE", None],
        },
        "orders": {
            "shop": ["a", "a", "b"],
            "number": [1, 2, 1],
            "at": [5 * DAY, 6 * DAY, 40 * DAY],
            "customer": pyarrow.array([10, 2**40, 999], pyarrow.float64()),
            "price": [1.0, 100.0, 3.0],
        },
        "items": {
            "shop": ["b", "a", "a", "a"],
            "number": [1, 2, 2, None],
            "product": ["x", "y", "x", "y"],
            "replaces": ["y", None, None, None],
        },
        "products": {"sku": ["x", "y"], "kind": ["toy", "book"]},
        "churn": {
            "customer": [10, 2**40, 10, 30],
            "asked": [10 * DAY, 25 * DAY, 35 * DAY, 12 * DAY],
            "churned": pyarrow.array([True, False, True, None]),
        },
    }


def write_parquet(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in content.items():
        table = pyarrow.table(columns)
        if name == "items":
            # A folder of files is one table.
            (folder / name).mkdir(exist_ok=True)
            for part in range(2):
                parquet.write_table(table.slice(part * 2, 2), folder / name / f"part-{part}.parquet")
        else:
            parquet.write_table(table, folder / f"{name}.parquet")
    (folder / "schema.toml").write_text(SCHEMA)


def write_csv(folder, content):
    from pyarrow import csv

    folder.mkdir()
    for name, columns in content.items():
        csv.write_csv(pyarrow.table(columns), folder / f"{name}.csv")


def write_sqlite(path, content):
    with sqlite3.connect(path) as connection:
        for name, columns in content.items():
            table = pyarrow.table(columns)
            connection.execute(f"CREATE TABLE {name} ({', '.join(table.column_names)})")
            rows = zip(*(_plain(column) for column in table.columns), strict=True)
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * table.num_columns)})", rows)


def _plain(column):
    """Values as SQLite holds them: times as texts."""
    return [each.isoformat(" ") if isinstance(each, datetime) else each for each in column.to_pylist()]


def edges_of(graph, relation):
    """Edges of a relation as pairs of numbers within their types, with their times."""
    types = graph.types
    number = [str(each) for each in types.relations].index(relation)
    found = set()
    for v in range(graph.vertices):
        for e in range(graph.indptr[v], graph.indptr[v + 1]):
            if graph.edge_data.relation[e] == number:
                ends = types.bases[types.ends[number]]
                found.add((int(graph.indices[e] - ends[0]), int(v - ends[1]), int(graph.edge_data.time[e])))
    return found


ALWAYS, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
RELATIONS = {
    "orders:customer:customers": {(0, 0, 5 * DAY), (1, 1, 6 * DAY)},
    "customers:rev_customer:orders": {(0, 0, DAY), (1, 1, 2 * DAY)},
    "items:order:orders": {(0, 2, ALWAYS), (1, 1, ALWAYS), (2, 1, ALWAYS)},
    "orders:rev_order:items": {(2, 0, 40 * DAY), (1, 1, 6 * DAY), (1, 2, 6 * DAY)},
    "items:product:products": {(0, 0, ALWAYS), (1, 1, ALWAYS), (2, 0, ALWAYS), (3, 1, ALWAYS)},
    "products:rev_replaces:items": {(1, 0, ALWAYS)},
    "products.kind:kind:products": {(1, 1, ALWAYS), (2, 0, ALWAYS)},
    "customers:rev_customer:churn": {(0, 0, DAY), (0, 2, DAY), (1, 1, 2 * DAY), (2, 3, NEVER)},
}


def check(graph):
    """The graph of the five tables."""
    names = [str(each) for each in graph.types.relations]
    assert graph.types.vertices[0].name == "products.kind"
    assert graph.types.target == "churn"
    for relation, edges in RELATIONS.items():
        assert edges_of(graph, relation) == edges, relation
    # Rows of a task are seen by nobody.
    assert not [name for name in names if name.startswith("churn:")]
    assert graph.types.relations[names.index("customers:rev_customer:orders")].reverse_of == names.index(
        "orders:customer:customers"
    )
    target = slice(*graph.typed.offsets[list(graph.types.bases).index(graph.types.bases[-2]) :][:2])
    assert graph.labels[target].tolist() == [1, 0, 1, -1]
    assert graph.split[target].tolist() == [1, 2, 3, 0]
    assert graph.time[target].tolist() == [10 * DAY, 25 * DAY, 35 * DAY, 12 * DAY]


def test_parquet(imported, prep, tmp_path):
    write_parquet(tmp_path / "shop", tables())
    graph = imported(tmp_path / "shop")
    check(graph)
    assert prep("check", tmp_path / "out.h5").code == 0
    for note in (
        "customers: 1 with primary key of an earlier row, 1 with no time",
        "orders: 1 whose customer names no row of its table",
        "items: 1 without order, 3 without replaces",
    ):
        assert note in graph.table


def test_statistics_are_those_of_the_training_period(imported, tmp_path):
    write_parquet(tmp_path / "shop", tables())
    graph = imported(tmp_path / "shop")
    found = json.loads((tmp_path / "out.encoders.json").read_text())["tables"]
    # The third customer has no time, so that no training row sees it; the last one joins before the end.
    assert found["customers"]["age"]["mean"] == pytest.approx((20 + 40 + 1e9) / 3)
    assert found["customers"]["country"] == {
        "encoder": "one-hot",
        "categories": ["DE", "FR"],
        "missing": True,
        "separator": "",
    }
    # The order at day 40 is later than the training period.
    assert found["orders"]["price"]["mean"] == pytest.approx((np.log1p(1) + np.log1p(100)) / 2)
    number = [each.name for each in graph.types.vertices].index("customers")
    country = np.asarray(graph.typed.features[number])[:, -4:]
    assert country.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("kind", ["csv", "sqlite", "duckdb"])
def test_other_kinds_give_the_same_graph(imported, tmp_path, kind):
    write_parquet(tmp_path / "shop", tables())
    expected = imported(tmp_path / "shop").uuid
    schema = tmp_path / "shop/schema.toml"
    source = tmp_path / kind
    if kind == "csv":
        write_csv(source, tables())
    elif kind == "sqlite":
        write_sqlite(source, tables())
    else:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(source)) as connection:
            for name, columns in tables().items():
                connection.register("given", pyarrow.table(columns))
                connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    graph = imported(source, "--schema", schema)
    check(graph)
    assert graph.uuid == expected


def test_encoders_go_with_the_dataset_and_encode_other_tables(imported, prep, tmp_path):
    write_parquet(tmp_path / "shop", tables())
    imported(tmp_path / "shop")
    assert prep("partition", tmp_path / "out.h5", tmp_path / "data", "--parts", "2", "--seed", "0").code == 0
    assert open_dataset(tmp_path / "data", typed=True).attributes["column_encoders"] == "column-encoders.json"

    # Later tables: other countries, kinds and ages, and no labels.
    content = tables()
    content["customers"]["country"] = ["BR", "FR", "BR", "JP"]
    content["products"]["kind"] = ["toy", "car"]
    content["churn"]["churned"] = pyarrow.array([None] * 4, pyarrow.bool_())
    write_parquet(tmp_path / "later", content)
    before = (tmp_path / "data/column-encoders.json").read_bytes()
    graph = imported(tmp_path / "later", "--encoders", tmp_path / "data")
    assert (tmp_path / "out.encoders.json").read_bytes() == before
    number = [each.name for each in graph.types.vertices].index("customers")
    country = np.asarray(graph.typed.features[number])[:, -4:]
    assert country.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    assert edges_of(graph, "products.kind:kind:products") == {(2, 0, ALWAYS), (0, 1, ALWAYS)}
    assert graph.types.vertices[0].vertices == 3


def test_encoders_of_another_schema_are_refused(imported, refused, tmp_path):
    write_parquet(tmp_path / "shop", tables())
    imported(tmp_path / "shop")
    other = tmp_path / "other.toml"
    other.write_text(SCHEMA.replace('columns.age = "standard"', 'columns.age = "log"'))
    message = refused(tmp_path / "shop", "--schema", other, "--encoders", tmp_path / "out.h5")
    assert "[tables.customers]: columns and encoders are not those of the dataset" in message


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('time = "joined"', 'time = "since"', "[tables.customers]: the table has no column 'since'; it has id, joined"),
        ('columns.age = "standard"', 'columns.age = "standrd"', "did you mean 'standard'?"),
        ('{columns = ["shop", "number"]', '{columns = ["shop"]', "has 1 column, the primary key of orders has 2"),
        ('customer = "customers"', 'customer = "customer"', "did you mean 'customers'?"),
        ('foreign_keys.customer = "customers"', 'foreign_keys.price = "products"', "holds whole numbers, but the key"),
        ("train_until = 1970-01-21", "train_until = 1969-01-21", "no labelled row is earlier than train_until"),
        ('columns.asked = "date"', 'columns.churned = "boolean"', "'churned' is the label"),
        ("[tables.products]", "[tables.goods]", "names the table 'products'; known: customers, goods, items, orders"),
        ('columns.country = "one-hot"', 'columns.country = "standard"', "column 'country' holds no numbers"),
        ('columns.country = "one-hot"', 'columns.country = {encoder = "one-hot", most = 0}', "most is 0; expected"),
    ],
)
def test_faults_of_a_schema(refused, tmp_path, before, after, sentence):
    write_parquet(tmp_path / "shop", tables())
    assert before in SCHEMA
    schema = tmp_path / "other.toml"
    schema.write_text(SCHEMA.replace(before, after, 1))
    assert sentence in refused(tmp_path / "shop", "--schema", schema)


@pytest.mark.parametrize("fault", ["dangling", "duplicate", "no-time"])
def test_faults_of_rows_can_be_refused(refused, tmp_path, fault):
    write_parquet(tmp_path / "shop", tables())
    assert f"leave {fault} out of --refuse" in refused(tmp_path / "shop", "--refuse", fault)


def test_a_damaged_file(refused, tmp_path):
    write_parquet(tmp_path / "shop", tables())
    (tmp_path / "shop/orders.parquet").write_bytes(b"PAR1 nothing")
    assert "orders.parquet cannot be read" in refused(tmp_path / "shop")


def test_guessed_schema_is_one_that_imports(imported, prep, tmp_path):
    rows = 60
    stamp = pyarrow.timestamp("s")
    content = {
        "customers": {"customer_id": np.arange(rows) + 5, "city": [f"c{v % 7}" for v in range(rows)]},
        "categories": {"id": [f"k{v}" for v in range(9)]},
        "orders": {
            "order_id": [f"o-{v}" for v in range(rows)],
            "customer_id": np.arange(rows) % 50 + 5,
            "category": [f"k{v % 9}" for v in range(rows)],
            "ordered_at": pyarrow.array(np.arange(rows) * DAY, stamp),
            "price": np.geomspace(0.1, 1e5, rows),
            "note": [f"a text of its own {v}" * 3 for v in range(rows)],
        },
    }
    folder = tmp_path / "shop"
    write_parquet(folder, content)
    (folder / "schema.toml").unlink()
    outcome = prep("import", folder, "--guess-schema", tmp_path / "guess.toml")
    assert outcome.code == 0, outcome.error
    text = (tmp_path / "guess.toml").read_text()
    for line in (
        'primary_key = "order_id"',
        'customer_id = "customers"',
        'category = "categories"',
        'time = "ordered_at"',
        'price = "log"',
        'city = "one-hot"',
        "# note: string",
    ):
        assert line in text
    graph = imported(folder, "--schema", tmp_path / "guess.toml")
    assert "orders:category:categories" in map(str, graph.types.relations)


def test_csv_types_widen_where_later_rows_do_not_fit(imported, tmp_path, monkeypatch):
    from data_prep.formats import arrow_tables

    monkeypatch.setattr(arrow_tables, "_CSV_BLOCK", 64)
    folder = tmp_path / "shop"
    folder.mkdir()
    ids = [*(f"{v:04d}" for v in range(40)), "A1"]
    (folder / "people.csv").write_text("id,age\n" + "".join(f"{v},{n}\n" for n, v in enumerate(ids[:-1])) + "A1,7.5\n")
    (folder / "notes.csv").write_text("who\n" + "\n".join(reversed(ids)) + "\n")
    (folder / "schema.toml").write_text(
        '[tables.people]\nprimary_key = "id"\ncolumns.age = "standard"\n[tables.notes]\nforeign_keys.who = "people"\n'
    )
    graph = imported(folder)
    assert len(edges_of(graph, "notes:who:people")) == 41
    assert datetime.fromtimestamp(0, UTC).year == 1970


@pytest.mark.parametrize("rows", [3, 4])
def test_vectors_in_a_file_beside_a_table(imported, refused, tmp_path, rows):
    write_parquet(tmp_path / "shop", tables())
    words = np.random.default_rng(0).normal(size=(rows, 5)).astype(np.float32)
    np.save(tmp_path / "shop/words.npy", words)
    line = '\ncolumns.words = {encoder = "vector", file = "words.npy"}'
    price = 'columns.price = "log"'
    (tmp_path / "shop/schema.toml").write_text(SCHEMA.replace(price, price + line))
    if rows == 4:
        assert "expected a row of numbers for each of the table's 3 rows" in refused(tmp_path / "shop")
        return
    graph = imported(tmp_path / "shop")
    number = [each.name for each in graph.types.vertices].index("orders")
    np.testing.assert_array_equal(graph.typed.features[number][:, -5:], words)


def test_numbers_that_no_class_and_no_vector_can_hold(refused, tmp_path):
    content = tables()
    content["churn"]["churned"] = [0.0, 1.0, 1e300, 0.0]
    write_parquet(tmp_path / "shop", content)
    assert "table churn, column 'churned', row 2 (counted from 0): the class is 1e+300; classes are whole" in refused(
        tmp_path / "shop"
    )
    content = tables()
    content["orders"]["words"] = [[1.0, 2.0], [3.0, -1e300], [0.0, 1.0]]
    write_parquet(tmp_path / "other", content)
    price = 'columns.price = "log"'
    (tmp_path / "other/schema.toml").write_text(SCHEMA.replace(price, price + '\ncolumns.words = "vector"'))
    said = refused(tmp_path / "other")
    assert "table orders, column 'words', row 1 (counted from 0)" in said
    assert "too large for float32" in said
