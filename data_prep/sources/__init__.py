"""The graph formats that `leapmpi-prep import` reads, one file each: SUMMARY, one line; OPTIONS, the fields of
ReadOptions that it takes; `can_read(path)`, a cheap look (formats exclude each other); `read(path, options)`.
"""
