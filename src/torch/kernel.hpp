// Long argument lists of dispatcher operators, spelled once: a struct has the arguments as fields, in the order of the
// schema, and names them in arguments(). kernel<&f> gives a function of one or two such structs the signature that the
// dispatcher wants; operator_handle<&f>() and call_operator() call an operator with structs.
#pragma once

#include <torch/library.h>
#include <torch/torch.h>

#include <optional>
#include <tuple>
#include <type_traits>

namespace mhla::dispatch {

using OptionalTensor = std::optional<at::Tensor>;

// How the dispatcher hands a field over: tensors by reference, all else by value.
template <typename Field>
using Argument =
    std::conditional_t<std::is_same_v<Field, at::Tensor> || std::is_same_v<Field, OptionalTensor>, const Field&, Field>;

template <typename... Fields>
struct Arguments {};
template <typename... Fields>
Arguments<Argument<Fields>...> arguments_of(const std::tuple<const Fields&...>&);
template <typename Struct>
using ArgumentsOf = decltype(arguments_of(std::declval<const Struct&>().arguments()));

template <auto kFunction, typename Result, typename First, typename Second, typename FirstArguments,
          typename SecondArguments>
struct Kernel;
template <auto kFunction, typename Result, typename First, typename Second, typename... A, typename... B>
struct Kernel<kFunction, Result, First, Second, Arguments<A...>, Arguments<B...>> {
  static Result run(A... a, B... b) { return kFunction(First{std::forward<A>(a)...}, Second{std::forward<B>(b)...}); }
};
template <auto kFunction, typename Result, typename First, typename... A>
struct Kernel<kFunction, Result, First, void, Arguments<A...>, void> {
  static Result run(A... a) { return kFunction(First{std::forward<A>(a)...}); }
};

template <auto kFunction, typename Result, typename First>
constexpr auto* kernel_of(Result (*)(const First&)) {
  return &Kernel<kFunction, Result, First, void, ArgumentsOf<First>, void>::run;
}
template <auto kFunction, typename Result, typename First, typename Second>
constexpr auto* kernel_of(Result (*)(const First&, const Second&)) {
  return &Kernel<kFunction, Result, First, Second, ArgumentsOf<First>, ArgumentsOf<Second>>::run;
}
template <auto kFunction>
inline constexpr auto* kernel = kernel_of<kFunction>(kFunction);

template <auto kFunction>
auto operator_handle(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<std::remove_pointer_t<std::remove_const_t<decltype(kernel<kFunction>)>>>();
}

template <typename Operator, typename... Structs>
auto call_operator(const Operator& op, const Structs&... structs) {
  return std::apply([&](const auto&... arguments) { return op.call(arguments...); },
                    std::tuple_cat(structs.arguments()...));
}

}  // namespace mhla::dispatch
