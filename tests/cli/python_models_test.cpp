// mhla.models of the Python package, on a package of this build's libraries.
#ifdef MHLA_GENERATORS_LIBRARY
#include <gtest/gtest.h>

#include "cli/captured.hpp"
#include "io/file.hpp"
#include "models/generator_file.hpp"
#include "models/small_generator.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::cli {
namespace {

namespace fs = std::filesystem;

TEST(PythonModels, DrawThePicturesOfTheProgram) {
  const mhla::testing::TemporaryFolder folder;
  fs::create_directories(folder / "site/mhla");
  for (const auto& entry : fs::directory_iterator(MHLA_PYTHON_SOURCES))
    if (entry.path().extension() == ".py")
      fs::create_symlink(entry.path(), folder / "site/mhla" / entry.path().filename());
  for (const fs::path library : {MHLA_TORCH_LIBRARY, MHLA_GENERATORS_LIBRARY}) {
    const std::string name = library.filename().string();
    fs::create_symlink(library, folder / "site/mhla" / name.substr(0, name.find(".so") + 3));
  }
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
  const auto run = mhla::testing::run_command("PYTHONPATH='" + (folder / "site").string() + "' " + MHLA_PYTHON + " '" +
                                              (folder / "script.py").string() + "' '" + model.parent_path().string() +
                                              "' '" + (folder / "a.npz").string() + "' 2>&1");
  EXPECT_EQ(run.exit_code, 0) << run.out;
}

}  // namespace
}  // namespace mhla::cli
#endif
