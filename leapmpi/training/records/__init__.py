"""What a run says of itself: the banner at its start, the record of each epoch, and what an epoch has cost so far.

In: measured times, counts and losses of this rank. Out: plain values for metrics.jsonl, and lines for people.
"""
