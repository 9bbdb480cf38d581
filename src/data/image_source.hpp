// Labelled images in the usual layout `<split>/<class>/*.jpg|png`: a folder, or a tar archive (plain or .gz) of one.
//
// Images are ordered by class, then by name, so that a folder and an archive of it are the same source. A class's label
// is its place in the sorted list of class names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/image.hpp"

namespace mhla::data {

class ImageSource {
 public:
  virtual ~ImageSource() = default;

  std::int64_t size() const { return static_cast<std::int64_t>(items_.size()); }
  const std::vector<std::string>& classes() const { return classes_; }
  std::int64_t label(std::int64_t index) const { return items_[index].label; }
  // As it may be shown: "eurosat/train/Forest/1.jpg", "eurosat.tar.gz: train/Forest/1.jpg".
  virtual std::string name(std::int64_t index) const = 0;
  // Throws an Error with the image's name where it cannot be decoded. Any thread may call it.
  virtual io::Image load(std::int64_t index) const = 0;
  // What a user should know: empty class folders, files that are no images.
  const std::vector<std::string>& warnings() const { return warnings_; }

 protected:
  // Everything below the split's folder, by path: "Forest/1.jpg".
  struct Listing {
    struct File {
      std::string path;
      std::size_t entry = 0;  // which of an archive's files
    };
    std::vector<File> files;
    std::vector<std::string> folders;
  };
  struct Item {
    std::string path;
    std::size_t entry;
    std::int64_t label;
  };

  // `where` is the split's place as it may be shown.
  ImageSource(Listing listing, const std::string& where, const std::vector<std::string>& classes);

  std::vector<Item> items_;
  std::vector<std::string> classes_;
  std::vector<std::string> warnings_;
};

// An empty `split` means that the class folders lie at the top. `classes`, where given, fixes the labels (those of a
// trained model, or of the training split): a class folder outside it is an error.
std::shared_ptr<const ImageSource> open_image_source(const std::filesystem::path& path, const std::string& split,
                                                     const std::vector<std::string>& classes = {});

// The top folders of `path` that hold class folders: "test", "train", "val".
std::vector<std::string> image_splits(const std::filesystem::path& path);

}  // namespace mhla::data
