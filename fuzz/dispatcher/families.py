"""All calls by their names."""

from attention_call import AttentionCall
from state_call import BytesCall, DecodeCall, StateCall

CALLS = {call.name: call for call in (AttentionCall(), StateCall(), BytesCall(), DecodeCall())}
