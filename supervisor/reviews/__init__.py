"""The review service, a product of its own on the gate's API: only `app` and `cli` import it.

    webhooks -> reconcile -> stored_slots -> queue -> runs (clones, a session) -> poster

`core/` is its pure half, `store/` its database, `forges/` and `queue/` are its ports; `routes/`,
`cli/` and `app/` are what it hands over. Start with `service`.
"""
