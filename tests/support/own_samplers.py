"""Samplers of a user, in a file of their own."""

from leapmpi.sampling.user_samplers.api import NONE, OwnSampler, below


class Sparing(OwnSampler):
    """Draws by words and original ids, and leaves some transits out."""

    def next(neighbours, number, size, drawn, word):
        if below(word, 5) == 0:
            return NONE
        return neighbours[(below(word, len(neighbours)) + neighbours[0]) % len(neighbours)]

    unique = False

    def transit(step, vertex, degree):
        return step == 0 or (vertex + degree) % 3 > 0


class Together(OwnSampler):
    """Draws once for all transits of a step."""

    collective = True

    def next(neighbours, number, size, drawn, word):
        return neighbours[number]
