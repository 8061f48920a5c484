"""The review service, built on the gate's API. Only `app` and `cli` import it.

    webhooks -> reconcile -> stored_slots -> queue -> runs (clones, a session) -> poster

`core/` is its pure half, `store/` its database, `forges/` and `queue/` are its ports; the
supervisor uses `pages/`, `cli/` and `app/`. Start with `service`.
"""
