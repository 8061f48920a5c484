"""The review agent: reads a diff and the workspace, asks, ends with findings.

It runs inside the sandbox and is trusted with nothing: it can only ask. The gate and the sandbox
protect the host; this code protects only the review itself, from the code that is being reviewed.
Diff and files are data, tools stay inside the workspace, and programs are started without the
session's token.

    settings -> model (anthropic_model | recorded_model) -> loop
                -> tools    -> gatehouse (the agent API)
                -> findings -> POST /v1/review
"""
