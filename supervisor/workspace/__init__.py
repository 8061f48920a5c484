"""The workspace channel: the agent's private copy of the host's folder, and the reviewed way back.

    snapshot   makes the copy and its baseline            contents says what belongs in it; copying does the copying
    watch      wakes the comparison                       walk     finds what differs, by signatures alone
    scan       reads one folder or one path               blobs    keeps the exact bytes that a request is about
    channel    compares, asks the gate, carries out       apply    writes to the host, beneath it and nowhere else
    findings   tells a rename from two changes            undo     takes back what was applied, as a whole
    overlay    the copy without copying: the host's       upper    what the agent touched in it; since says what both
               folder shines through                               sides began with

INVARIANT: every path is opened relative to a directory descriptor, component by component, never through a symlink
(`beneath`). The copy belongs to a hostile writer at all times; the host's folder is never assumed to hold still.
"""
