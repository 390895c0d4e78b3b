"""BVGraph streams in plain Python: an encoder with every code and device of the format, and a decoder by offsets."""

import random


def to_signed(number):
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def to_natural(number):
    return 2 * number if number >= 0 else -2 * number - 1


def minimal_binary(number, size):
    log = size.bit_length() - 1
    short = (1 << (log + 1)) - size
    if number < short:
        return format(number, f"0{log}b") if log else ""
    return format(number + short, f"0{log + 1}b")


def encoded(number, code, k=3):
    """The codeword of a natural number as a text of 0 and 1."""
    if code == "UNARY":
        return "0" * number + "1"
    if code == "GAMMA":
        binary = format(number + 1, "b")
        return "0" * (len(binary) - 1) + binary
    if code == "DELTA":
        binary = format(number + 1, "b")
        return encoded(len(binary) - 1, "GAMMA") + binary[1:]
    if code == "ZETA":
        height = ((number + 1).bit_length() - 1) // k
        low = 1 << (height * k)
        return "0" * height + "1" + minimal_binary(number + 1 - low, (1 << ((height + 1) * k)) - low)
    if code == "GOLOMB":
        return "0" * (number // k) + "1" + minimal_binary(number % k, k)
    octal = format(number, "o")
    return "".join(("1" if at == len(octal) - 1 else "0") + format(int(digit), "03b") for at, digit in enumerate(octal))


DEFAULT = {"OUTDEGREES": "GAMMA", "REFERENCES": "UNARY", "BLOCK_COUNT": "GAMMA", "BLOCKS": "GAMMA", "RESIDUALS": "ZETA"}


def blocks_of(source, targets):
    """Lengths of the alternately copied and skipped blocks of `source`, the first copied; the last one is implied."""
    lengths, copying = [0], True
    for item in source:
        if (item in targets) != copying:
            lengths.append(0)
            copying = not copying
        lengths[-1] += 1
    return lengths[:-1]


def intervals_of(numbers, shortest):
    found, at = [], 0
    while at < len(numbers):
        stop = at + 1
        while stop < len(numbers) and numbers[stop] == numbers[stop - 1] + 1:
            stop += 1
        if stop - at >= shortest:
            found.append((numbers[at], stop - at))
        at = stop
    return found


def record(vertex, lists, back, codes, shortest, k, window):
    targets = lists[vertex]
    bits = encoded(len(targets), codes["OUTDEGREES"])
    if not targets:
        return bits
    left = targets
    if window:
        bits += encoded(back, codes["REFERENCES"])
    if back:
        blocks = blocks_of(lists[vertex - back], set(targets))
        bits += encoded(len(blocks), codes["BLOCK_COUNT"])
        for number, length in enumerate(blocks):
            bits += encoded(length - (number > 0), codes["BLOCKS"])
        left = [target for target in targets if target not in set(lists[vertex - back])]
    if left and shortest:
        intervals = intervals_of(left, shortest)
        bits += encoded(len(intervals), "GAMMA")
        previous = None
        for start, length in intervals:
            gap = to_natural(start - vertex) if previous is None else start - previous - 1
            bits += encoded(gap, "GAMMA") + encoded(length - shortest, "GAMMA")
            previous = start + length
            left = [target for target in left if not start <= target < start + length]
    for number, target in enumerate(left):
        gap = to_natural(target - vertex) if number == 0 else target - left[number - 1] - 1
        bits += encoded(gap, codes["RESIDUALS"], k)
    return bits


def write_graph(stem, lists, *, codes=None, window=7, shortest=4, k=3, seed=0, **properties):
    """Write STEM.graph and STEM.properties; references are chosen at random. Returns the path of the .graph."""
    choice = random.Random(seed)
    codes = DEFAULT | (codes or {})
    bits = "".join(
        record(vertex, lists, choice.randint(0, min(window, vertex)), codes, shortest, k, window)
        for vertex in range(len(lists))
    )
    bits += "0" * (-len(bits) % 8)
    path = stem.with_suffix(".graph")
    path.write_bytes(bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)))
    stated = {
        "version": 0,
        "graphclass": "it.unimi.dsi.webgraph.BVGraph",
        "nodes": len(lists),
        "arcs": sum(map(len, lists)),
        "windowsize": window,
        "minintervallength": shortest,
        "zetak": k,
        "compressionflags": " | ".join(f"{name}_{code}" for name, code in codes.items() if code != DEFAULT[name]),
    } | properties
    lines = (f"{name}={value}" for name, value in stated.items())
    path.with_suffix(".properties").write_text("#BVGraph properties\n" + "\n".join(lines) + "\n")
    return path


class Bits:
    """Plain reader of a stream with default codes."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, count):
        value = 0
        for _ in range(count):
            value = 2 * value + (self.data[self.at // 8] >> (7 - self.at % 8) & 1)
            self.at += 1
        return value

    def unary(self):
        count = 0
        while not self.take(1):
            count += 1
        return count

    def gamma(self):
        length = self.unary()
        return (1 << length) + self.take(length) - 1

    def zeta3(self):
        height = self.unary()
        low = 1 << (3 * height)
        value = self.take(3 * height + 2)
        return value + low - 1 if value < low else 2 * value + self.take(1) - 1


def successors(data, offsets, vertex):
    """The successors of `vertex` by random access: window 7, intervals from 4, default codes."""
    bits = Bits(data, offsets[vertex])
    degree = bits.gamma()
    found = set()
    back = bits.unary() if degree else 0
    if back:
        source = sorted(successors(data, offsets, vertex - back))
        lengths = [bits.gamma() + (number > 0) for number in range(bits.gamma())]
        lengths.append(len(source) - sum(lengths))
        for number, length in enumerate(lengths):
            if number % 2 == 0:
                found |= set(source[sum(lengths[:number]) :][:length])
    if len(found) < degree:
        end = None
        for _ in range(bits.gamma()):
            gap = bits.gamma()
            start = vertex + to_signed(gap) if end is None else end + gap + 1
            end = start + bits.gamma() + 4
            found |= set(range(start, end))
    previous = None
    while len(found) < degree:
        gap = bits.zeta3()
        previous = vertex + to_signed(gap) if previous is None else previous + gap + 1
        found.add(previous)
    return found
