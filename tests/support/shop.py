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
