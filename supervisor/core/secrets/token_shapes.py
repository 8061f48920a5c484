"""Shapes of well-known tokens: they find secrets whose values Gatehouse doesn't know.

The command line hides tokens in its errors by this module alone, so it imports next to nothing.

INVARIANT: a shape matches only characters that mean nothing to a shell or a programming language:
no quotes, brackets, separators or free text. Hidden text must not be able to act, or an agent could
hide a command in a "password" from the person who answers.
"""

import re

MARK = "[redacted]"
SHAPES = re.compile(
    r"""
      # Anthropic, OpenAI and OpenRouter keys: anywhere, where they look like nothing else; others from a word's start, or behind an escape or a terminal's colours:
      # a host `helpdesk-...` and a package `task-...` are to be seen whole
      sk-(?=ant-[a-z]{3,8}[0-9]{2}-|or-v1-[0-9a-f]{16}|[A-Za-z0-9_-]{16,200}T3BlbkFJ)[A-Za-z0-9_-]{16,}
    | sk-(?:(?<![A-Za-z0-9]sk-)|(?<=\\[bfnrt]sk-)|(?<=[0-9[][mK]sk-)|(?<=%[0-9A-Fa-f]{2}sk-)|(?<=\\x[0-9A-Fa-f]{2}sk-)|(?<=\\u[0-9A-Fa-f]{4}sk-))[A-Za-z0-9_-]{16,}
    # GitHub's; the newer ones of an installation hold dots and dashes
    | ghs_[A-Za-z0-9._-]{35,}[A-Za-z0-9_-] | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}
    | gl(?:pat|ptt|rt|dt|cbt|soat|oas|agent)-[A-Za-z0-9_-]{16,}(?:\.[0-9a-z]{2}\.[0-9a-z]{7,9})?
    # Slack: tokens, the cookie of a browser's (escaped or not), an app's, the address of a webhook
    | xox[a-eo-s]-[A-Za-z0-9%/+-]{10,} | xapp-[0-9]-[A-Za-z0-9-]{20,}
    | (?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,} | (?<=hooks\.slack\.com/triggers/)[A-Za-z0-9/]{20,} | (?<=hooks\.slack\.com/workflows/)[A-Za-z0-9/]{20,}
    | AT[ACS]TT3[A-Za-z0-9_-]{20,}(?:=[0-9A-F]{8})? | ATBB[A-Za-z0-9]{28,}   # Bitbucket, and Atlassian's others
    # AWS: access key ids, the tokens of a session, keys of Bedrock, long and short
    | (?:AKIA|ASIA)[A-Z0-9]{16} | (?:IQoJb3JpZ2lu|F[wQ]oGZXIvYXdz)[A-Za-z0-9/+]{60,}={0,2}
    | ABSK[A-Za-z0-9/+]{100,}={0,2} | bedrock-api-key-[A-Za-z0-9/+]{40,}={0,2}
    | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{40,} | rubygems_[a-f0-9]{48} | dckr_[op]at_[A-Za-z0-9_-]{20,}
    # Stripe; a digit is in each of its keys, and not in the name of a `task_test_...`
    | [rs]k_(?:live|test|prod)_(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{20,} | whsec_[A-Za-z0-9+/]{30,}={0,2}
    # Google: keys of either kind, and what its sign-in gives
    | AIza[A-Za-z0-9_-]{35} | AQ\.Ab[A-Za-z0-9_-]{40,} | GOCSPX-[A-Za-z0-9_-]{20,}
    | ya29\.[A-Za-z0-9._-]{29,}[A-Za-z0-9_-] | (?<![A-Za-z0-9])1//0[A-Za-z0-9_-]{40,}
    | hf_[A-Za-z0-9]{34,} | gsk_[A-Za-z0-9]{40,} | xai-[A-Za-z0-9]{60,} | pplx-[A-Za-z0-9]{40,}   # Hugging Face, Groq, xAI, Perplexity
    | SG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{40,46}         # SendGrid
    | do[opr]_v1_[a-f0-9]{64} | shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}   # DigitalOcean, Shopify
    | hv[bs]\.[A-Za-z0-9_-]{60,} | ops_eyJ[A-Za-z0-9+/]{100,}={0,3} | AGE-SECRET-KEY-1[A-Z0-9]{58}   # Vault, 1Password, age
    | glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8} | glc_[A-Za-z0-9+/]{32,}={0,3} | sntry[su]_[A-Za-z0-9+/=_]{60,}   # Grafana, Sentry
    | lin_api_[A-Za-z0-9]{32,} | ntn_[A-Za-z0-9]{40,} | PMAK-[A-Fa-f0-9]{24}-[A-Fa-f0-9]{34}   # Linear, Notion, Postman
    | dapi[a-f0-9]{32} | pul-[a-f0-9]{40} | pscale_(?:tkn|oauth|pw)_[A-Za-z0-9_.-]{32,} | tskey-[a-z]{3,12}-[A-Za-z0-9-]{16,}   # Databricks, Pulumi, PlanetScale, Tailscale
    | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}   # JSON web tokens; from a word's start, or a long run is read anew from each place in it
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----                 # with the base64 below it, cut off or whole
      (?:(?:\s|\\[nrt])+(?:Proc-Type|DEK-Info):[ ][A-Z0-9,-]{1,80})*
      (?:(?:\s|\\[nrt])+[A-Za-z0-9+][A-Za-z0-9+/]{15,}={0,2})*
      (?:(?:(?:\s|\\[nrt])+[A-Za-z0-9+/]{1,76}={0,2})?(?:\s|\\[nrt])*-----END[ ][A-Z ]*PRIVATE[ ]KEY-----)?
    | (?<=Bearer[ ])[A-Za-z0-9._~+/-]{12,}=*
    # Name and password in base64; a digit or its padding is in nearly each, and in no word after `Basic`
    | (?<=[Bb]asic[ ])(?=[A-Za-z/+]{0,300}[0-9=])[A-Za-z0-9/+]{16,}={0,2}
    | (?<=[Aa]uthorization:[ ][Bb]asic[ ])[A-Za-z0-9/+]{4,}={0,2}
    | (?<=://)[\w.~%!$*+,=^-]{1,100}:[\w.~%!$*+,=^:?\#-]{1,200}(?=@)      # credentials in a URL
    """,  # noqa: E501
    re.VERBOSE,
)

# A secret key of AWS has no shape except its length, so its name has to identify it.
LABELLED = re.compile(
    r"((?:secret_access_key|SECRET_ACCESS_KEY|[sS]ecretAccessKey|aws_secret_key|AWS_SECRET_KEY)"
    r"""(?:\\{0,3}["'])?[ \t]{0,40}(?::=|=>|[:=>])[ \t]{0,40}(?:\\{0,3}["'])?)"""
    r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
)

# INVARIANT: whatever a shape matches, with its look-around, has one of these in it, each with its
# own prerequisite. Looking for them takes a hundredth of the time of the search; most are looked
# for only where the rarer one before them was found, and one character is found in a tenth of the
# time of two.
PARTS = {
    "-": ("sk-", "pypi-", "PRIVATE KEY-----", "pul-", "tskey-", "bedrock-api-key-"),
    "_": (
        "github_pat_",
        "npm_",
        "rubygems_",
        "dckr_",
        "whsec_",
        "hf_",
        "sntrys_",
        "sntryu_",
        "lin_api_",
        "ntn_",
        "pscale_",
    ),
    "gh": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    "gl": (
        "glpat-",
        "glptt-",
        "glrt-",
        "gldt-",
        "glcbt-",
        "glsoat-",
        "gloas-",
        "glagent-",
        "glsa_",
        "glc_",
    ),
    "k_": ("sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_", "rk_prod_", "gsk_"),
    "_v1_": ("dop_v1_", "doo_v1_", "dor_v1_"),
    "shp": ("shpat_", "shpca_", "shppa_", "shpss_"),
    "x": ("xox", "xapp-", "xai-", "pplx-"),
    "A": (
        "AKIA",
        "ASIA",
        "ATATT3",
        "ATCTT3",
        "ATSTT3",
        "ATBB",
        "ABSK",
        "AIza",
        "AQ.Ab",
        "AGE-SECRET-KEY-1",
        "PMAK-",
        "SecretAccessKey",
        "secretAccessKey",
        "SECRET_ACCESS_KEY",
        "AWS_SECRET_KEY",
    ),
    "G": ("GOCSPX-", "SG.", "FwoGZXIvYXdz", "FQoGZXIvYXdz"),
    "I": ("IQoJb3JpZ2lu",),
    "_key": ("secret_access_key", "aws_secret_key"),
    "asic ": ("Basic ", "basic "),
    "9": ("ya29.",),
    "hv": ("hvb.", "hvs."),
    "dapi": ("dapi",),
    "J": ("eyJ",),
    "B": ("Bearer ",),
    "/": ("://", "1//0", "hooks.slack.com/"),
}


def without_tokens(text: str) -> str:
    """Return a text with `[redacted]` in place of anything that looks like a token."""
    has_part = any(
        first in text and any(part in text for part in parts) for first, parts in PARTS.items()
    )
    return LABELLED.sub(rf"\1{MARK}", SHAPES.sub(MARK, text)) if has_part else text
