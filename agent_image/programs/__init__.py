"""What stands in for programs that reach beyond the sandbox: each asks Gatehouse, and passes its
answer on as that program's own output and exit code.

`door` asks. They run as `python3 -I -S`, in any folder, as any program's child: they import next to
nothing, and believe no variable of the environment.
"""
