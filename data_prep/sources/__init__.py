"""The graph formats that `leapmpi-prep import` reads, one file each: SUMMARY, one line; OPTIONS, the fields of
ReadOptions that it takes; `can_read(path)`, a cheap look (formats exclude each other); `read(path, options)`, which
raises DataError naming file and place of the first fault, ConfigError for an option that the file does not fit.
"""
