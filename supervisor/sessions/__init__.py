"""One bounded run of one agent, from its private copy to its last pass.

Start with `session_manager`; `surroundings` holds the channels and sockets around one session.
"""
