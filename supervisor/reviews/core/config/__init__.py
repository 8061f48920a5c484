"""`.reviewerc` and what comes of it: the file's shapes, its strict reader, and what holds where
several files and settings say something.

Start with `reader`, which makes a `.reviewerc` of bytes or says everything that is wrong with them;
`effective` says what holds of several.
"""
