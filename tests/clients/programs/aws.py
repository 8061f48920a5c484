"""What AWS's own client does with the keys that it finds in the environment: `aws.py ENDPOINT`.
It prints a line for each call."""

import io
import sys

import botocore.session
from botocore.config import Config

LONG = b"z" * 300_000
KEY = "a b/ü+%~.txt"


def client(service):
    session = botocore.session.get_session()
    config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    return session.create_client(
        service, region_name="eu-west-1", endpoint_url=sys.argv[1], config=config
    )


def converse():
    """A call that is longer than what is passed on unread, and its streamed answer."""
    words = [{"role": "user", "content": [{"text": "y" * 100_000}]}]
    model = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
    stream = client("bedrock-runtime").converse_stream(
        modelId=model, messages=words, inferenceConfig={"maxTokens": 100}
    )
    return [
        one["contentBlockDelta"]["delta"]["text"]
        for one in stream["stream"]
        if "contentBlockDelta" in one
    ]


s3, dynamo = client("s3"), client("dynamodb")
s3.put_object(Bucket="bucket", Key=KEY, Body=b"small")
print(
    "small:", s3.get_object(Bucket="bucket", Key=KEY, VersionId="a/b c~=&*")["Body"].read().decode()
)
s3.put_object(Bucket="bucket", Key="long", Body=LONG)
s3.put_object(Bucket="bucket", Key="file", Body=io.BytesIO(LONG))
for name in ("long", "file"):
    print(f"{name}:", s3.get_object(Bucket="bucket", Key=name)["Body"].read() == LONG)
# Nothing in such a request says what its body's hash is.
dynamo.put_item(TableName="table", Item={"a": {"S": "x" * 300_000}})
print("written: True")
print("model:", converse())
