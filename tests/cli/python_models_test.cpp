// mhla.models of the Python package, on a package of this build's libraries.
#ifdef MHLA_GENERATORS_LIBRARY
#include <gtest/gtest.h>

#include "cli/captured.hpp"
#include "io/file.hpp"
#include "io/json.hpp"
#include "models/generator_file.hpp"
#include "models/small_generator.hpp"
#include "support/program.hpp"
#include "support/small_language_model.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::cli {
namespace {

namespace fs = std::filesystem;

// <folder>/site/mhla
void make_package(const mhla::testing::TemporaryFolder& folder) {
  fs::create_directories(folder / "site/mhla");
  for (const auto& entry : fs::directory_iterator(MHLA_PYTHON_SOURCES))
    if (entry.path().extension() == ".py")
      fs::create_symlink(entry.path(), folder / "site/mhla" / entry.path().filename());
  for (const fs::path library : {MHLA_TORCH_LIBRARY, MHLA_GENERATORS_LIBRARY}) {
    const std::string name = library.filename().string();
    fs::create_symlink(library, folder / "site/mhla" / name.substr(0, name.find(".so") + 3));
  }
}

// <folder>/script.py with these arguments.
void run_script(const mhla::testing::TemporaryFolder& folder, const std::vector<fs::path>& arguments) {
  std::string command =
      "PYTHONPATH='" + (folder / "site").string() + "' " + MHLA_PYTHON + " '" + (folder / "script.py").string() + "'";
  for (const fs::path& argument : arguments) command += " '" + argument.string() + "'";
  const auto run = mhla::testing::run_command(command + " 2>&1");
  EXPECT_EQ(run.exit_code, 0) << run.out;
}

TEST(PythonModels, DrawThePicturesOfTheProgram) {
  const mhla::testing::TemporaryFolder folder;
  make_package(folder);
  const fs::path model = folder / "weights/model.safetensors";
  models::save_generator(*models::testing::small_generator(), model, {.classes = {"cat", "dog", "boar", "owl"}});
  const Captured drawn =
      run_captured({"sample", "--model", model.string(), "--class", "owl,0", "--count", "2", "--first", "1", "--steps",
                    "3", "--seed", "9", "--device", "cpu", "--npz", (folder / "a.npz").string()});
  ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
  io::write_file(folder / "script.py", R"(
import sys
import numpy as np
import torch
from mhla.models import DiT

folder, archive = sys.argv[1:]
model = DiT.from_pretrained(folder)
assert model.class_names == ["cat", "dog", "boar", "owl"] and model.latent_scale is None
assert model.config["width"] == 32
pictures = model.sample(["owl", 0], count=2, first=1, steps=3, seed=9)
assert pictures.shape == (4, 3, 8, 8) and pictures.dtype == torch.float32
pixels = (127.5 * pictures + 128).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
assert torch.equal(pixels, torch.from_numpy(np.load(archive)["arr_0"]))
x, t, y = torch.randn(2, 3, 8, 8), torch.tensor([5.0, 900.0]), torch.tensor([1, 4])
assert model(x, t, y).shape == (2, 6, 8, 8)


def refused(**wrong):
    try:
        model.sample(**wrong)
    except ValueError as error:
        return str(error)
    raise AssertionError("not refused")


assert "classes is \"cow\"; it may be all, none, a number from 0 to 3, or a name: cat" in refused(classes="cow")
assert "steps is 0; it may be 1 to 1000" in refused(steps=0)
assert "size is 9 x 8; height and width must be multiples of the patch, 2" in refused(size=(9, 8))
assert "count is 0; it must be at least 1" in refused(count=0)
try:
    DiT.from_pretrained(folder + "/none.safetensors")
except ValueError as error:
    assert "none.safetensors: there is no such file" in str(error)
else:
    raise AssertionError("not refused")
)");
  run_script(folder, {model.parent_path(), folder / "a.npz"});
}

TEST(PythonModels, WriteTheTextsOfTheProgram) {
  const mhla::testing::TemporaryFolder folder;
  make_package(folder);
  mhla::testing::save_small_language_model(folder / "lm");
  const Captured written = run_captured({"generate",
                                         "--model",
                                         (folder / "lm").string(),
                                         "-p",
                                         "the theme",
                                         "-p",
                                         "x",
                                         "--count",
                                         "2",
                                         "--tokens",
                                         "12",
                                         "--seed",
                                         "9",
                                         "--top-k",
                                         "100",
                                         "--temperature",
                                         "0.9",
                                         "--repetition-penalty",
                                         "1.2",
                                         "--device",
                                         "cpu",
                                         "--json",
                                         (folder / "a.json").string()});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  io::write_file(folder / "script.py", R"(
import json
import sys
import torch
from mhla.models import LM

folder, answers = sys.argv[1:]
model = LM.from_pretrained(folder)
assert model.config["width"] == 32 and model.max_length is None
assert LM.from_pretrained(folder + "/model.safetensors", beyond="error").max_length == 32
how = dict(tokens=12, seed=9, top_k=100, temperature=0.9, repetition_penalty=1.2)
expected = [each["text"] for each in json.load(open(answers))["answers"]]
assert model.generate(["the theme", "x"], count=2, **how) == [expected[:2], expected[2:]]
assert model.generate("x", **how) == expected[2]
assert model.generate(["x"], stop=expected[2][3:5], **how) == [expected[2].split(expected[2][3:5])[0]]
assert isinstance(model.generate(tokens=3), str)

tokenizer = model.tokenizer
assert tokenizer.encode("the theme") == [257, 220, 257, 76, 68], tokenizer.encode("the theme")
assert len(tokenizer) == 260, len(tokenizer)
assert tokenizer.decode([257, 258, 68]) == "the the" and tokenizer.begin == tokenizer.end == 259

ids = torch.tensor([[259, *tokenizer.encode("the theme")]])
logits = model(ids)
assert logits.shape == (1, 6, 260)
scores = logits[0].double().log_softmax(1)


def summed(first):
    rows = range(first, 6)
    total = sum(scores[row - 1, ids[0, row]].item() for row in rows)
    return total, all(scores[row - 1].argmax() == ids[0, row] for row in rows)


# " theme" goes on from "the", whichever of the two has the space; a text alone goes on from the token that begins it.
pairs = [("the", " theme"), ("the ", "theme"), ("", "the theme")]
for (total, greedy), first in zip(model.loglikelihood(pairs), (2, 2, 1), strict=True):
    assert abs(total - summed(first)[0]) < 1e-5 and greedy == summed(first)[1]


def refused(call, *arguments, **wrong):
    try:
        call(*arguments, **wrong)
    except (TypeError, ValueError) as error:
        return str(error)
    raise AssertionError("not refused")


assert "tokens is 0" in refused(model.generate, "x", tokens=0)
assert "top_p is 0" in refused(model.generate, "x", top_p=0)
assert "stop string is empty" in refused(model.generate, "x", stop="")
assert "prompt holds 7" in refused(model.generate, ["x", 7])
assert "ids go from 3 to 260" in refused(model, torch.tensor([[3, 260]]))
assert "ids hold 260" in refused(tokenizer.decode, [260])
assert "continuation is empty" in refused(model.loglikelihood, [("x", "")])
assert "none" in refused(LM.from_pretrained, folder + "/none.safetensors")
assert "beyond" in refused(LM.from_pretrained, folder, beyond="cow")
)");
  run_script(folder, {folder / "lm", folder / "a.json"});
}

}  // namespace
}  // namespace mhla::cli
#endif
