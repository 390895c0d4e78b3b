"""Single-precision numbers with exponents of three bits, for slow links.

Exponents of rows and gradients fill a few of their 256 values: seven neighbouring ones hold most numbers. A number then
takes 27 bits, and one outside of these seven 8 more. Every bit comes back.

A message is words uint32: the largest of the seven exponents; the count of numbers; for each 32 numbers three words,
bit by bit of their codes, and 24 of signs and fractions; then the exponents of numbers outside, four a word.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled

HEAD, BLOCK, BLOCK_WORDS = 2, 32, 27
"""Words before the blocks, numbers of a block, words of a block."""

_CODES, _OUTSIDE = 7, np.uint32(7)
_EVERY = 16
"""One number in so many is read to choose exponents."""

_FRACTION, _LOW, _BYTE = np.uint32(0x7FFFFF), np.uint32(0xFFFFFF), np.uint32(0xFF)


@compiled
def _largest(numbers, count):
    """Return the largest of the seven exponents that hold the most numbers, by a sample."""
    found = np.zeros(256 + _CODES, np.int64)
    for k in range(0, count, _EVERY):
        found[(numbers[k] >> np.uint32(23)) & _BYTE] += 1
    held = found[:_CODES].sum()
    best, largest = held, _CODES - 1
    for exponent in range(_CODES, 256):
        held += found[exponent] - found[exponent - _CODES]
        if held > best:
            best, largest = held, exponent
    return np.uint32(largest)


@compiled
def most_words(count):
    """Return the most words that `shorten` writes for `count` numbers."""
    return HEAD + (count + BLOCK - 1) // BLOCK * BLOCK_WORDS + (count + 3) // 4 + BLOCK


@compiled
def _write_block(codes, parts, words):
    """Write the codes of a block, bit by bit, and its signs and fractions, 24 bits each; return the lanes outside."""
    low, middle, high = np.uint32(0), np.uint32(0), np.uint32(0)
    for k in range(BLOCK):
        code, lane = codes[k], np.uint32(k)
        low |= (code & np.uint32(1)) << lane
        middle |= ((code >> np.uint32(1)) & np.uint32(1)) << lane
        high |= (code >> np.uint32(2)) << lane
    words[0], words[1], words[2] = low, middle, high
    for k in range(0, BLOCK, 4):
        a, b, c, d = parts[k], parts[k + 1], parts[k + 2], parts[k + 3]
        place = 3 + 3 * k // 4
        words[place] = a | b << np.uint32(24)
        words[place + 1] = b >> np.uint32(8) | c << np.uint32(16)
        words[place + 2] = c >> np.uint32(16) | d << np.uint32(8)
    return low & middle & high


@compiled
def _read_block(words, parts):
    """Read signs and fractions of a block to `parts`."""
    for k in range(0, BLOCK, 4):
        place = 3 + 3 * k // 4
        a, b, c = words[place], words[place + 1], words[place + 2]
        parts[k] = a & _LOW
        parts[k + 1] = (a >> np.uint32(24) | b << np.uint32(8)) & _LOW
        parts[k + 2] = (b >> np.uint32(16) | c << np.uint32(16)) & _LOW
        parts[k + 3] = c >> np.uint32(8)


@compiled
def shorten(numbers, count, out):
    """Write the first `count` of `numbers` (uint32, the bits of floats) to `out`; return the words taken.

    `out` has `most_words(count)`.
    """
    largest = _largest(numbers, count)
    out[0], out[1] = largest, np.uint32(count)
    codes, parts = np.empty(BLOCK, np.uint32), np.zeros(BLOCK, np.uint32)
    blocks = (count + BLOCK - 1) // BLOCK
    exponents, taken = out[HEAD + BLOCK_WORDS * blocks :].view(np.uint8), 0
    for block in range(blocks):
        first, place = BLOCK * block, HEAD + BLOCK_WORDS * block
        size = min(BLOCK, count - first)
        for k in range(size):
            number = numbers[first + k]
            codes[k] = min(largest - ((number >> np.uint32(23)) & _BYTE), _OUTSIDE)
            parts[k] = (number & _FRACTION) | (number >> np.uint32(31)) << np.uint32(23)
        codes[size:] = 0
        if _write_block(codes, parts, out[place : place + BLOCK_WORDS]):
            # An exponent that no code stands for follows the blocks, as a byte.
            for k in range(size):
                if codes[k] == _OUTSIDE:
                    exponents[taken] = numbers[first + k] >> np.uint32(23) & _BYTE
                    taken += 1
    return HEAD + BLOCK_WORDS * blocks + (taken + 3) // 4


@compiled
def lengthen(words, out):
    """Reverse `shorten`: write the numbers to `out` (uint32), which has room for whole blocks."""
    largest, count = words[0], np.int64(words[1])
    parts = np.empty(BLOCK, np.uint32)
    blocks = (count + BLOCK - 1) // BLOCK
    exponents, taken = words[HEAD + BLOCK_WORDS * blocks :].view(np.uint8), 0
    for block in range(blocks):
        first, place = BLOCK * block, HEAD + BLOCK_WORDS * block
        low, middle, high = words[place], words[place + 1], words[place + 2]
        _read_block(words[place : place + BLOCK_WORDS], parts)
        for k in range(BLOCK):
            lane, part, one = np.uint32(k), parts[k], np.uint32(1)
            code = (low >> lane) & one | ((middle >> lane) & one) << one | ((high >> lane) & one) << np.uint32(2)
            exponent = (largest - code) & _BYTE
            out[first + k] = (part & _FRACTION) | exponent << np.uint32(23) | (part >> np.uint32(23)) << np.uint32(31)

        outside = low & middle & high
        for k in range(BLOCK if outside else 0):
            if outside >> np.uint32(k) & np.uint32(1):
                exponent = np.uint32(exponents[taken])
                out[first + k] = out[first + k] & ~(_BYTE << np.uint32(23)) | exponent << np.uint32(23)
                taken += 1


def shortened(words: np.ndarray, count: int) -> np.ndarray:
    """Return a piece of `count` numbers (uint32[k], as `packed_rows` made it) as uint8[m], shortened if that saves."""
    heads = 0 if len(words) == count else -(-count // BLOCK)
    numbers = words[heads:]
    room = np.empty(heads + most_words(len(numbers)), np.uint32)
    taken = heads + shorten(numbers, len(numbers), room[heads:])
    if taken >= len(words):
        return words.view(np.uint8)
    # A byte beyond whole words is the mark of short exponents; it says whether heads precede them.
    room[:heads] = words[:heads]
    found = np.empty(4 * taken + 1, np.uint8)
    found[:-1], found[-1] = room[:taken].view(np.uint8), heads > 0
    return found


def lengthened(piece: np.ndarray, count: int) -> np.ndarray:
    """Reverse `shortened` where it has shortened a piece: return it as uint8[m]."""
    if len(piece) % 4 == 0:
        return piece
    words, heads = piece[:-1].view(np.uint32), -(-count // BLOCK) if piece[-1] else 0
    numbers = int(words[heads + 1])
    # The kernel writes whole blocks.
    found = np.empty(heads + numbers + BLOCK, np.uint32)
    found[:heads] = words[:heads]
    lengthen(words[heads:], found[heads:])
    return found[: heads + numbers].view(np.uint8)
