#include <algorithm>
#include <cmath>
#include <limits>

#include "services/data/row_parser.h"

// The tokens half of RowParser: rows that are ids already.
namespace dex::data {

namespace {

constexpr int64_t kIgnored = -100;  // PyTorch's ignore_index, as in Hugging Face's data sets
constexpr double kLargestWeight = 100;

std::string at(std::string_view key, size_t index) {
  return "$." + std::string(key) + "[" + std::to_string(index) + "]";
}

}  // namespace

void RowParser::read_tokens(Value root, Row& row) {
  const auto ids = root.find("input_ids"), labels = root.find("labels"),
             weights = root.find("loss_weights");
  if (!ids) {
    error("missing_key", root, "$.input_ids", "the key \"input_ids\" is missing");
    return;
  }
  if (!ids->is(JsonLine::Kind::kArray)) {
    error(
        "wrong_type", *ids, "$.input_ids",
        "input_ids is " + std::string(describe(ids->kind())) + ", expected an array of token ids");
    return;
  }
  bool sound = true;
  ids->for_each_item([&](size_t index, Value value) {
    if (!sound) return;
    const auto id = value.is(JsonLine::Kind::kNumber) ? value.integer() : std::nullopt;
    if (id && *id >= 0 && *id <= std::numeric_limits<int32_t>::max()) {
      row.content.input_ids.push_back(static_cast<int32_t>(*id));
      return;
    }
    sound = false;
    error("wrong_type", value, at("input_ids", index),
          "a token id is " + std::string(value.raw().substr(0, 40)) +
              ", expected a whole number from 0 on");
  });
  if (!sound) return;
  if (row.content.input_ids.empty()) {
    error("empty_content", *ids, "$.input_ids", "input_ids is empty");
    return;
  }
  if (labels && weights) {
    error("wrong_type", *weights, "$.loss_weights",
          "the row has labels and loss_weights, expected one of the two");
  } else if (labels) {
    read_labels(*labels, row);
  } else if (weights) {
    read_loss_weights(*weights, row);
  } else {
    error("missing_key", root, "$.labels", "neither \"labels\" nor \"loss_weights\" is there",
          "to train every token, give labels equal to input_ids");
  }
}

void RowParser::read_labels(Value value, Row& row) {
  const std::vector<int32_t>& ids = row.content.input_ids;
  if (!value.is(JsonLine::Kind::kArray)) {
    error("wrong_type", value, "$.labels",
          "labels is " + std::string(describe(value.kind())) +
              ", expected an array as long as input_ids");
    return;
  }
  if (const size_t size = value.size(); size != ids.size()) {
    error("length_mismatch", value, "$.labels",
          "labels has " + std::to_string(size) + " entries, input_ids has " +
              std::to_string(ids.size()));
    return;
  }
  bool sound = true, any = false;
  value.for_each_item([&](size_t index, Value item) {
    if (!sound) return;
    const auto label = item.is(JsonLine::Kind::kNumber) ? item.integer() : std::nullopt;
    if (label == kIgnored || label == ids[index]) {
      any |= label != kIgnored;
      row.content.loss_weights.push_back(label == kIgnored ? 0.0f : 1.0f);
      return;
    }
    sound = false;
    if (!label) {
      error(
          "wrong_type", item, at("labels", index),
          "a label is " + std::string(item.raw().substr(0, 40)) + ", expected a token id or -100");
      return;
    }
    error("weight_invalid", item, at("labels", index),
          "the label is " + std::to_string(*label) + " where the token is " +
              std::to_string(ids[index]) + ", expected that token or -100 (not trained)",
          "labels are not shifted: labels[i] belongs to input_ids[i]");
  });
  if (sound && !any) {
    error("all_weights_zero", value, "$.labels", "every label is -100, so nothing is trained");
  }
}

void RowParser::read_loss_weights(Value value, Row& row) {
  const size_t expected = row.content.input_ids.size();
  if (!value.is(JsonLine::Kind::kArray)) {
    error("wrong_type", value, "$.loss_weights",
          "loss_weights is " + std::string(describe(value.kind())) +
              ", expected an array as long as input_ids");
    return;
  }
  if (const size_t size = value.size(); size != expected) {
    error("length_mismatch", value, "$.loss_weights",
          "loss_weights has " + std::to_string(size) + " entries, input_ids has " +
              std::to_string(expected));
    return;
  }
  bool sound = true;
  value.for_each_item([&](size_t index, Value item) {
    if (!sound) return;
    const double weight = item.is(JsonLine::Kind::kNumber) ? item.number() : -1;
    sound = weight >= 0 && weight <= kLargestWeight;
    if (sound) {
      row.content.loss_weights.push_back(static_cast<float>(weight));
    } else {
      error("weight_invalid", item, at("loss_weights", index),
            "a weight is " + std::string(item.raw().substr(0, 40)) +
                ", expected a number from 0 to 100");
    }
  });
  if (sound && std::ranges::all_of(row.content.loss_weights, [](float w) { return w == 0; })) {
    error("all_weights_zero", value, "$.loss_weights", "every weight is 0, so nothing is trained");
  }
}

}  // namespace dex::data
