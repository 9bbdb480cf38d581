// Folders and archives of labelled images.
#include "data/image_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "io/printable.hpp"
#include "io/tar.hpp"
#include "mhla/types.hpp"

namespace mhla::data {
namespace {
namespace fs = std::filesystem;

std::string_view first_part(std::string_view path) { return path.substr(0, path.find('/')); }

// Folders may have any bytes for a name; a class has one that files and terminals can show.
std::string class_of(std::string_view path) { return io::printable(first_part(path)); }

std::string_view last_part(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool is_image_name(std::string_view path) {
  const std::string_view name = last_part(path);
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string ending(name.substr(dot + 1));
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

bool is_hidden(std::string_view path) { return path.starts_with('.') || path.find("/.") != std::string_view::npos; }

// "train", "val" -> 'train, val'
std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void refuse_split(const fs::path& path, const std::string& split) {
  throw Error(
      fmt::format("{}: there is no split \"{}\"; there are: {}", path.string(), split, listed(image_splits(path))));
}

class FolderSource final : public ImageSource {
 public:
  FolderSource(const fs::path& folder, const std::vector<std::string>& classes)
      : ImageSource(list(folder), folder.string(), classes), folder_(folder) {}

  std::string name(std::int64_t index) const override { return (folder_ / items_[index].path).string(); }
  io::Image load(std::int64_t index) const override { return io::load_image(folder_ / items_[index].path); }

 private:
  // Links are followed. One folder under two names is refused: a link to a folder around it has no end, and elsewhere
  // images would count twice.
  static Listing list(const fs::path& folder) {
    Listing listing;
    std::map<fs::path, fs::path> seen;  // by its path without links
    std::vector<fs::path> open = {folder};
    while (!open.empty()) {
      const fs::path here = std::move(open.back());
      open.pop_back();
      std::error_code failure;
      const fs::path real = fs::canonical(here, failure);
      if (const auto [other, added] = seen.try_emplace(real, here); !failure && !added)
        throw Error(fmt::format("{} and {} are the same folder; remove one of the links", other->second.string(),
                                here.string()));
      for (fs::directory_iterator entries(here, failure); !failure && entries != fs::directory_iterator{};
           entries.increment(failure)) {
        const std::string path = entries->path().lexically_relative(folder).generic_string();
        std::error_code unknown;  // what leads nowhere is a file that cannot be read
        if (entries->is_directory(unknown)) {
          listing.folders.push_back(path);
          open.push_back(entries->path());
        } else {
          listing.files.push_back({path});
        }
      }
      if (failure) throw Error(fmt::format("{}: cannot be listed: {}", here.string(), failure.message()));
    }
    return listing;
  }

  fs::path folder_;
};

class ArchiveSource final : public ImageSource {
 public:
  ArchiveSource(const std::shared_ptr<const io::TarArchive>& archive, const std::string& folder,
                const std::vector<std::string>& classes)
      : ImageSource(list(*archive, folder), fmt::format("{}: {}", archive->source(), folder), classes),
        archive_(archive) {
    for (const std::string& entry : archive->left_out())
      if (entry.starts_with(folder))
        warnings_.push_back(fmt::format("{}: {}: neither a file nor a folder; left out", archive->source(), entry));
  }

  std::string name(std::int64_t index) const override {
    return fmt::format("{}: {}", archive_->source(), archive_->files()[items_[index].entry].name);
  }
  io::Image load(std::int64_t index) const override {
    return io::decode_image(archive_->files()[items_[index].entry].data, name(index));
  }

 private:
  static Listing list(const io::TarArchive& archive, const std::string& folder) {
    Listing listing;
    for (std::size_t entry = 0; entry < archive.files().size(); ++entry)
      if (const std::string& name = archive.files()[entry].name; name.starts_with(folder))
        listing.files.push_back({name.substr(folder.size()), entry});
    for (const std::string& name : archive.folders())
      if (name.starts_with(folder)) listing.folders.push_back(name.substr(folder.size()));
    return listing;
  }

  std::shared_ptr<const io::TarArchive> archive_;
};

std::vector<std::string> names_in(const io::TarArchive& archive) {
  std::vector<std::string> names = archive.folders();
  for (const io::TarEntry& file : archive.files()) names.push_back(file.name);
  return names;
}

// Archives often wrap everything in one folder: "eurosat/". Empty where this one does not.
std::string wrapping_folder(const std::vector<std::string>& names) {
  std::set<std::string_view> tops;
  for (const std::string& name : names) tops.insert(first_part(name));
  return tops.size() == 1 ? std::string(*tops.begin()) + "/" : "";
}

// The split's folder in the archive, with a closing slash; empty for an empty split.
std::string split_folder(const io::TarArchive& archive, const fs::path& path, const std::string& split) {
  if (split.empty()) return "";
  const std::vector<std::string> names = names_in(archive);
  for (const std::string& root : {std::string(), wrapping_folder(names)})
    if (const std::string folder = root + split + "/";
        std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(folder); }))
      return folder;
  refuse_split(path, split);
}

}  // namespace

ImageSource::ImageSource(Listing listing, const std::string& where, const std::vector<std::string>& classes) {
  struct ClassFolder {
    std::string name;
    std::int64_t images = 0;
  };
  std::map<std::string, ClassFolder> folders;  // by class
  const auto class_folder = [&](std::string_view path) -> ClassFolder& {
    const ClassFolder folder{std::string(first_part(path))};
    auto& [name, known] = *folders.try_emplace(class_of(path), folder).first;
    if (known.name != folder.name)
      throw Error(fmt::format("{}: two class folders are shown as \"{}\"; one must be renamed", where, name));
    return known;
  };
  for (const std::string& folder : listing.folders)
    if (!is_hidden(folder)) class_folder(folder);
  std::vector<std::string> others;
  for (Listing::File& file : listing.files) {
    if (is_hidden(file.path)) continue;
    if (!is_image_name(file.path) || file.path.find('/') == std::string::npos) {
      others.push_back(file.path);
      continue;
    }
    ++class_folder(file.path).images;
    items_.push_back({std::move(file.path), file.entry, 0});
  }
  if (!others.empty())
    warnings_.push_back(fmt::format("{}: {} left out, not .jpg, .jpeg or .png in a class folder; the first is {}",
                                    where, others.size() == 1 ? "1 file" : fmt::format("{} files", others.size()),
                                    *std::ranges::min_element(others)));
  for (const auto& [name, folder] : folders) {
    if (folder.images > 0 && classes.empty()) classes_.push_back(name);
    if (folder.images == 0)
      warnings_.push_back(fmt::format("{}: the class folder \"{}\" is empty; left out", where, name));
  }
  if (items_.empty()) throw Error(fmt::format("{}: no images; they must lie in <class>/*.jpg, .jpeg or .png", where));
  if (!classes.empty()) classes_ = classes;
  std::map<std::string, std::int64_t> labels;
  for (const std::string& name : classes_) labels.emplace(name, std::ssize(labels));
  for (Item& item : items_) {
    const auto found = labels.find(class_of(item.path));
    if (found == labels.end())
      throw Error(fmt::format("{}: the class \"{}\" is not among those asked for: {}", where, class_of(item.path),
                              listed(classes_)));
    item.label = found->second;
  }
  std::ranges::sort(items_,
                    [](const Item& a, const Item& b) { return std::tie(a.label, a.path) < std::tie(b.label, b.path); });
}

std::shared_ptr<const ImageSource> open_image_source(const fs::path& path, const std::string& split,
                                                     const std::vector<std::string>& classes) {
  std::error_code failure;
  if (fs::is_directory(path, failure)) {
    if (!fs::is_directory(path / split, failure)) refuse_split(path, split);
    return std::make_shared<FolderSource>(split.empty() ? path : path / split, classes);
  }
  if (!fs::exists(path, failure))
    throw Error(fmt::format("{}: there is no such folder or tar archive of images", path.string()));
  const auto archive = std::make_shared<const io::TarArchive>(io::TarArchive::load(path));
  return std::make_shared<ArchiveSource>(archive, split_folder(*archive, path, split), classes);
}

std::vector<std::string> image_splits(const fs::path& path) {
  std::set<std::string> splits;
  std::error_code failure;
  if (fs::is_directory(path, failure)) {
    for (const fs::directory_entry& top : fs::directory_iterator(path, failure)) {
      if (!top.is_directory(failure)) continue;
      for (const fs::directory_entry& inner : fs::directory_iterator(top.path(), failure))
        if (inner.is_directory(failure)) splits.insert(top.path().filename().string());
    }
  } else {
    const std::vector<std::string> names = names_in(io::TarArchive::load(path));
    const std::string root = wrapping_folder(names);
    // "train/Forest/1.jpg": the split is what comes before a class folder with a file.
    for (const std::string& name : names) {
      const std::string_view inside = std::string_view(name).substr(name.starts_with(root) ? root.size() : 0);
      if (std::ranges::count(inside, '/') >= 2) splits.emplace(first_part(inside));
    }
    if (splits.empty() && !root.empty()) splits.insert(root.substr(0, root.size() - 1));
  }
  return {splits.begin(), splits.end()};
}

}  // namespace mhla::data
