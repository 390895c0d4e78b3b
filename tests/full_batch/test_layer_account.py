"""What the start of a run says of each layer."""

import numpy as np

from leapmpi.exchange.layer_graphs import KINDS, PARTIAL, PROJECTED, RAW
from leapmpi.full_batch.layer_account import account_of, sentence


def test_counts_of_ranks_add_up_and_are_told_by_layer():
    raw, projected, partial = (KINDS.index(kind) for kind in (RAW, PROJECTED, PARTIAL))
    one = [(raw, 5, 0, 0, 7), (raw, 0, 1000, 0, 0), (partial, 2, 0, 3, 0), (projected, 0, 0, 4, 0), (raw, 0, 0, 0, 0)]
    other = [(raw, 1, 0, 0, 0), (raw, 0, 234, 0, 0), (partial, 0, 0, 3, 0), (projected, 0, 0, 0, 0), (raw, 0, 0, 0, 0)]
    account = account_of(np.array([one, other]))
    assert account[2] == {"kind": PARTIAL, "cached": 2, "rows": 0, "by_kind": 6, "sums": 0}
    assert sentence(account) == (
        "remote inputs, over all ranks: layer 1: 6 feature rows kept, sums of features kept; "
        "layer 2: 1,234 rows sent; layer 3: 2 rows computed again, 6 partial sums sent; layer 4: 4 projected rows "
        "sent; layer 5: none"
    )
