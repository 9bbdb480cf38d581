// JSON text: what is accepted is the same after it was written and read again.
#include "io/json.hpp"

#include "support/target.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  return {
      bytes_of(R"({"model": "vit", "image_size": [64, 64], "patch": 8, "lepe": true, "drop_path": 0.1, "x": null})"),
      bytes_of(R"({"step": 12, "loss": 1.25e-3, "val/top1": 0.5, "name": "caf\u00e9 \ud83d\ude00 \\ \" \n"})"),
      bytes_of("[[[]], {}, -0, 1E+2, 18446744073709551615, -9223372036854775808, \"\"]")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::runs_or_names({"the-file"}, [&] {
    const io::Json value = io::parse_json({reinterpret_cast<const char*>(data), size}, "the-file");
    fuzz::expect(io::parse_json(value.dump(), "again") == value, "JSON changed on the way");
  });
  return 0;
}
