"""A shop in tables, with a task whose best score is known: customers, products, reviews, and (customer, time) rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

DAY = 86_400
START = 1_577_836_800
"""First second of 2020."""

NOISE = 0.1
"""Share of labels that are turned round: the best accuracy is 1 less this."""

SCHEMA = """
[tables.customers]
primary_key = "customer_id"
columns.age = "standard"
columns.country = "one-hot"

[tables.products]
primary_key = "sku"
columns.price = "log"

[tables.reviews]
time = "at"
foreign_keys.customer_id = "customers"
foreign_keys.sku = "products"
columns.rating = "standard"
columns.hint = "standard"

[tasks.happy]
foreign_keys.customer_id = "customers"
time = "asked"
label = "label"
train_until = 2020-07-01
val_until = 2020-09-01
"""


def write_shop(folder: Path, customers: int, *, leak: bool = False, seed: int = 0) -> None:
    """Write the shop and its schema to `folder`: nine reviews for each of `customers`, and two questions.

    A customer is happy whose reviews before the question rate above the average; ratings drift upwards in time. leak:
    labels are coins instead, and the first review after a question tells it in its column `hint`, so that only a model
    that sees the future can know.
    """
    random = np.random.default_rng(seed)
    ids = random.permutation(customers) * 1_000_003 + 10**12
    products = max(2, customers // 10)
    skus = np.array([f"sku-{number:06d}" for number in range(products)])

    # Three reviews, a question, three reviews, a question, three reviews: all of a customer within the year.
    taste = random.normal(0, 1, (customers, 2))
    mood = np.stack([taste[:, 0], taste[:, 1], random.normal(0, 1, customers)], axis=1)
    first = random.integers(0, 120, customers)
    days = first[:, None, None] + np.arange(3)[None, :, None] * 80 + np.arange(3) * 5
    rating = mood[:, :, None] + random.normal(0, 0.05, (customers, 3, 3)) + days / 365
    asked = first[:, None] + np.array([20, 100])
    before = np.stack([rating[:, 0].mean(1), rating[:, :2].mean((1, 2))], axis=1)
    drift = np.stack([days[:, 0].mean(1), days[:, :2].mean((1, 2))], axis=1) / 365
    label = (before > drift) ^ (random.random((customers, 2)) < NOISE)
    hint = random.normal(0, 1, rating.shape)
    if leak:
        label = random.random((customers, 2)) < 0.5
        for question in range(2):
            hint[:, question + 1] = np.where(label[:, question], 3, -3)[:, None]

    def times(numbers: np.ndarray) -> pyarrow.Array:
        return pyarrow.array(START + numbers.reshape(-1) * DAY, pyarrow.timestamp("s"))

    content = {
        "customers": {
            "customer_id": ids,
            "age": random.normal(40, 10, customers),
            "country": np.array(["DE", "FR", "JP"])[random.integers(0, 3, customers)],
        },
        "products": {"sku": skus, "price": np.exp(random.normal(3, 1, products))},
        "reviews": {
            "customer_id": np.repeat(ids, 9),
            "sku": skus[random.integers(0, products, 9 * customers)],
            "at": times(days),
            "rating": rating.reshape(-1),
            "hint": hint.reshape(-1),
        },
        "happy": {"customer_id": np.repeat(ids, 2), "asked": times(asked), "label": label.reshape(-1)},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in content.items():
        parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
    (folder / "schema.toml").write_text(SCHEMA)


SKU = "a product whose name is long, so that names of all are longer than an attribute "

PURCHASES = """
[tables.customers]
primary_key = "id"

[tables.orders]
time = "at"
foreign_keys.customer = "customers"
columns.sku = {{encoder = "one-hot", most = {products}}}

[tasks.next]
foreign_keys.customer = "customers"
time = "at"
label = "bought"
train_until = {train}
val_until = {val}
"""


def write_purchases(folder: Path, customers: int, products: int, seed: int = 0) -> None:
    """Write a shop whose customers each buy products of one of three kinds, and its schema, to `folder`.

    Four orders of each customer tell the kind; the task asks which two products of it are bought next. All of a kind
    are equally likely, so the best recall at K is K over a third of `products`, and the most popular ones have a third
    of it. Each customer is asked at a time of its own: two thirds train, a sixth validates, a sixth tests.
    """
    random = np.random.default_rng(seed)
    kind, of_kind = random.permutation(customers) % 3, products // 3
    orders = 3 * random.integers(0, of_kind, (customers, 4)) + kind[:, None]
    bought = 3 * np.argsort(random.random((customers, of_kind)), axis=1)[:, :2] + kind[:, None]
    names = np.array([f"{SKU}{number}" for number in range(3 * of_kind)])
    content = {
        "customers": {"id": np.arange(customers)},
        "orders": {
            "customer": np.repeat(np.arange(customers), 4),
            "at": (10 * np.arange(4) + random.integers(0, 7, (customers, 1))).reshape(-1),
            "sku": names[orders.reshape(-1)],
        },
        "next": {"customer": np.arange(customers), "at": 50 + np.arange(customers), "bought": names[bought].tolist()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in content.items():
        parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
    periods = {"train": 50 + customers * 2 // 3, "val": 50 + customers * 5 // 6}
    (folder / "schema.toml").write_text(PURCHASES.format(products=products, **periods))
