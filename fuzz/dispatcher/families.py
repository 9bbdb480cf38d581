"""All calls by their names; those of the operator itself come more often."""

from attention_call import AttentionCall
from fused_call import GatedNorm, LayerCall, MixingCall, Modulate, PartitionCall, RotaryFeatures
from state_call import BytesCall, DecodeCall, StateCall

CALLS = {
    call.name: call
    for call in (
        AttentionCall(),
        StateCall(),
        BytesCall(),
        DecodeCall(),
        GatedNorm(),
        Modulate(),
        RotaryFeatures(),
        PartitionCall(),
        MixingCall(),
        LayerCall(),
    )
}
OFTEN = ["attention"] * 6 + ["state"] * 2
