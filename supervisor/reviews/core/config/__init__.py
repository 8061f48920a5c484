"""`.reviewerc`: the file's shapes, its strict reader, and the merge of several sources.

Start with `reader`, which parses the bytes of a `.reviewerc` or lists everything that is wrong with
them. `effective` merges several files and settings.
"""
