// What travels through the dispatcher for torch.ops.mhla.attention, attention_keeping and attention_backward: the
// tensors and settings of a call, the schemas, and the one place that spells out their long argument lists.
//
// A kernel for a dispatch key is a function of Call (and Gradients); forward_kernel<F> and backward_kernel<F> give it
// the signature the dispatcher wants.
#pragma once

#include <torch/library.h>
#include <torch/torch.h>

#include <optional>
#include <string_view>
#include <tuple>

namespace mhla::dispatch {

using OptionalTensor = std::optional<at::Tensor>;

// One call of the operator. q, k, v: [B, N, H, D]; mixing: [M, M] or [H, M, M]; sizes may be symbolic under tracing.
// Lists and names are views of what the caller holds.
struct Call {
  at::Tensor q, k, v, mixing;
  OptionalTensor q_den, k_den;
  OptionalTensor cu_seqlens;
  OptionalTensor initial_S, initial_z;
  c10::SymInt initial_tokens = 0;
  c10::SymInt state_blocks = -1;  // blocks of the state to return; -1: none is returned
  c10::SymInt keep = 0;           // attention_keeping: bytes to return for the backward pass, Plan::kept_bytes()
  c10::SymIntArrayRef sizes{};
  at::IntArrayRef extents{};
  std::string_view feature_map, normalizer, masking, algorithm;
  double scale = 1.0, eps = 0.0, feature_eps = 0.0;

  bool has_normalizer() const { return normalizer != "none"; }
};

// What the backward pass gets beside the call: the output (with a normaliser), the gradients of the outputs, and what
// the forward pass kept.
struct Gradients {
  OptionalTensor o, d_o, d_S, d_z;
  bool mixing_wanted = true;
  OptionalTensor kept;
};

// o, S, z; the state tensors are empty ([0]) when not asked for.
using ForwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
// o, S, z, kept
using KeepingResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
// d_q, d_k, d_v, d_mixing, d_q_den, d_k_den, d_initial_S, d_initial_z; empty where there is no such input.
using BackwardResult =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

#define MHLA_CALL_SCHEMA                                                                                             \
  "Tensor q, Tensor k, Tensor v, Tensor mixing, SymInt[] sizes, int[] extents, str feature_map=\"relu\", "           \
  "str normalizer=\"paper\", str masking=\"none\", str algorithm=\"automatic\", float scale=1.0, float eps=1e-06, "  \
  "float feature_eps=0.0, Tensor? q_den=None, Tensor? k_den=None, Tensor? cu_seqlens=None, Tensor? initial_S=None, " \
  "Tensor? initial_z=None, SymInt initial_tokens=0, SymInt state_blocks=-1"

inline constexpr const char* kForwardSchema = "attention(" MHLA_CALL_SCHEMA ") -> (Tensor o, Tensor S, Tensor z)";
// For autograd alone: what it keeps is bytes of a layout of their own.
inline constexpr const char* kKeepingSchema =
    "attention_keeping(" MHLA_CALL_SCHEMA ", SymInt keep=0) -> (Tensor o, Tensor S, Tensor z, Tensor kept)";
inline constexpr const char* kBackwardSchema =
    "attention_backward(" MHLA_CALL_SCHEMA
    ", Tensor? o=None, Tensor? d_o=None, Tensor? d_S=None, Tensor? d_z=None, bool mixing_wanted=True, Tensor? "
    "kept=None) -> "
    "(Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_mixing, Tensor d_q_den, Tensor d_k_den, Tensor d_initial_S, "
    "Tensor d_initial_z)";
#undef MHLA_CALL_SCHEMA

using BackwardFunction = BackwardResult (*)(const Call&, const Gradients&);

// Keep: nothing, or the SymInt of attention_keeping.
template <auto kFunction, typename... Keep>
auto forward_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mixing,
                    c10::SymIntArrayRef sizes, at::IntArrayRef extents, std::string_view feature_map,
                    std::string_view normalizer, std::string_view masking, std::string_view algorithm, double scale,
                    double eps, double feature_eps, const OptionalTensor& q_den, const OptionalTensor& k_den,
                    const OptionalTensor& cu_seqlens, const OptionalTensor& initial_S, const OptionalTensor& initial_z,
                    c10::SymInt initial_tokens, c10::SymInt state_blocks, Keep... keep) {
  return kFunction(Call{q,
                        k,
                        v,
                        mixing,
                        q_den,
                        k_den,
                        cu_seqlens,
                        initial_S,
                        initial_z,
                        std::move(initial_tokens),
                        std::move(state_blocks),
                        (c10::SymInt(0), ..., std::move(keep)),
                        sizes,
                        extents,
                        feature_map,
                        normalizer,
                        masking,
                        algorithm,
                        scale,
                        eps,
                        feature_eps});
}

template <BackwardFunction kFunction>
BackwardResult backward_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mixing,
                               c10::SymIntArrayRef sizes, at::IntArrayRef extents, std::string_view feature_map,
                               std::string_view normalizer, std::string_view masking, std::string_view algorithm,
                               double scale, double eps, double feature_eps, const OptionalTensor& q_den,
                               const OptionalTensor& k_den, const OptionalTensor& cu_seqlens,
                               const OptionalTensor& initial_S, const OptionalTensor& initial_z,
                               c10::SymInt initial_tokens, c10::SymInt state_blocks, const OptionalTensor& o,
                               const OptionalTensor& d_o, const OptionalTensor& d_S, const OptionalTensor& d_z,
                               bool mixing_wanted, const OptionalTensor& kept) {
  return kFunction(Call{q,
                        k,
                        v,
                        mixing,
                        q_den,
                        k_den,
                        cu_seqlens,
                        initial_S,
                        initial_z,
                        std::move(initial_tokens),
                        std::move(state_blocks),
                        0,
                        sizes,
                        extents,
                        feature_map,
                        normalizer,
                        masking,
                        algorithm,
                        scale,
                        eps,
                        feature_eps},
                   Gradients{o, d_o, d_S, d_z, mixing_wanted, kept});
}

// What a call whose gradients are wanted should keep; 0 for packed sequences and symbolic sizes.
std::int64_t bytes_to_keep(const Call& call);

// Calls through the dispatcher.
ForwardResult call_forward(const Call& call);
KeepingResult call_keeping(const Call& call);
BackwardResult call_backward(const Call& call, const Gradients& gradients);

// Kernels by dispatch key; those of the CPU and of CUDA are the same.
ForwardResult forward_device(const Call& call);
KeepingResult keeping_device(const Call& call);
BackwardResult backward_device(const Call& call, const Gradients& gradients);
ForwardResult forward_meta(const Call& call);
KeepingResult keeping_meta(const Call& call);
BackwardResult backward_meta(const Call& call, const Gradients& gradients);
ForwardResult forward_autograd(const Call& call);
ForwardResult forward_autocast_cpu(const Call& call);
ForwardResult forward_autocast_cuda(const Call& call);

}  // namespace mhla::dispatch
