#include "worker/evaluate/shipped_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "services/base/sha256.h"
#include "worker/evaluate/random_stream.h"

namespace dex::evaluate {
namespace {

constexpr size_t kShippedSentences = 6000;

using Words = std::span<const char* const>;

// Who is where in a paragraph: the same in all of its sentences.
constexpr std::array kPlaces = {
    "the old mill",        "the ferry landing",       "the village school",  "the upper orchard",
    "the station garden",  "the rope workshop",       "the lighthouse",      "the corner bakery",
    "the town archive",    "the harbour office",      "the winter stable",   "the glass foundry",
    "the parish library",  "the stone bridge",        "the boathouse",       "the weaving room",
    "the observatory",     "the timber yard",         "the fishermen's inn", "the botanical garden",
    "the clock tower",     "the printing house",      "the salt works",      "the open-air theatre",
    "the mountain refuge", "the pottery by the river"};
constexpr std::array kPeople = {
    "the miller",         "a retired teacher",   "the baker's daughter", "the station master",
    "an old sailor",      "the younger brother", "the gardener",         "a travelling musician",
    "the bookbinder",     "the ferryman",        "a visiting surveyor",  "the shepherd",
    "the night watchman", "an apprentice",       "the organist",         "the widow next door",
    "the postmistress",   "a patient carpenter", "the glazier",          "the doctor's cousin",
    "the choirmaster",    "a quiet lodger",      "the beekeeper",        "the harbour pilot",
    "the seamstress",     "an honest grocer",    "the caretaker",        "a student of botany",
    "the blacksmith",     "the new librarian"};

constexpr std::array kTimes = {
    "in early spring",          "after the harvest",         "on market days",
    "before breakfast",         "late in the afternoon",     "during the long winter",
    "towards evening",          "one morning in autumn",     "soon after the thaw",
    "when the bells had ended", "on the last day of summer", "a little before noon",
    "in the week of the fair",  "as the days grew shorter",  "at the first light",
    "after a restless night",   "in the days of haymaking",  "when the school was closed",
    "long before the flood",    "between two showers",       "on the following day",
    "as soon as the fog rose",  "at the turn of the tide",   "in the quiet season"};
constexpr std::array kThings = {"the oak table",
                                "a box of brass hinges",
                                "the copper kettle",
                                "an unfinished letter",
                                "the spare anchor",
                                "a bundle of willow rods",
                                "the framed map",
                                "a basket of late pears",
                                "the heavy loom",
                                "the second ladder",
                                "a jar of honey",
                                "the garden gate",
                                "a coil of tarred rope",
                                "the cracked bell",
                                "an empty birdcage",
                                "the blue lantern",
                                "a sack of seed potatoes",
                                "the painted sign",
                                "the wooden sledge",
                                "a pair of scales",
                                "the broken barometer",
                                "a length of linen",
                                "the violin case",
                                "an iron stove",
                                "the visitors' book",
                                "a tray of seedlings",
                                "the weather vane",
                                "the upholstered chair",
                                "a drawer of buttons",
                                "the little rowing boat",
                                "an almanac",
                                "the chest under the stairs"};
constexpr std::array kDeeds = {"repaired",  "measured", "painted",   "cleaned", "sketched",
                               "weighed",   "borrowed", "returned",  "covered", "unpacked",
                               "inspected", "polished", "described", "lifted",  "photographed",
                               "admired",   "replaced", "labelled"};
constexpr std::array kManners = {"without any hurry",
                                 "with great care",
                                 "as if nothing had happened",
                                 "in complete silence",
                                 "with a borrowed tool",
                                 "to everybody's surprise",
                                 "the way it had been shown",
                                 "before anyone noticed",
                                 "with both hands",
                                 "for the sake of order",
                                 "with some reluctance",
                                 "in the light of a candle",
                                 "and whistled all the while",
                                 "in better spirits than before"};
constexpr std::array kReasons = {
    "because the road was still wet",      "since nobody else had the key",
    "because a promise is a promise",      "although the shop was about to close",
    "so that the guests would find it",    "because the damp had reached the wall",
    "while the others were at the table",  "although it was hardly worth the trouble",
    "since the cart would not wait",       "because the neighbours had asked twice",
    "so that it would outlast the winter", "although the paint was barely dry",
    "because it had stood there too long", "since the letter had said so"};
constexpr std::array kWeathers = {"the wind had turned to the north",
                                  "rain fell on the slates",
                                  "the river stood high",
                                  "a thin mist lay over the meadows",
                                  "the first swallows had come back",
                                  "snow covered the lower fields",
                                  "the sun broke through the clouds",
                                  "the leaves had begun to turn",
                                  "thunder rolled behind the hills",
                                  "the frost held until noon",
                                  "dust hung above the road",
                                  "the evening was warm and still",
                                  "hail had flattened the barley",
                                  "the moon rose over the chimneys"};
constexpr std::array kClaims = {"the well had never run dry",
                                "the bridge was older than the church",
                                "a good rope outlives its owner",
                                "the best apples grow by the wall",
                                "owls bring a mild winter",
                                "the tower leans a little every year",
                                "the ferry had once carried a piano",
                                "no two clocks in town agree",
                                "the cellar leads to the river",
                                "bees dislike a slammed door",
                                "the schoolhouse had been a stable",
                                "honest scales need no polish",
                                "the river used to run on the far side",
                                "a sharp tool is half the work",
                                "the fair had been larger in old days",
                                "whoever plants a walnut is patient"};
constexpr std::array kQuestions = {
    "where the ladder had gone",       "who had left the window open",
    "how the lock was meant to work",  "why the lamp was still burning",
    "when the mail coach would come",  "what the carved letters meant",
    "whether the ice would hold",      "which of the doors was the right one",
    "how long the repairs would take", "who had planted the row of limes",
    "whether the tune had any words",  "what was kept behind the curtain"};
constexpr std::array kViews = {"the far bank of the river",
                               "the vineyards",
                               "the roofs of the lower town",
                               "the old quarry",
                               "a row of poplars",
                               "the lock and its keeper's house",
                               "the sheep on the dyke",
                               "the railway embankment",
                               "a field of rye",
                               "the chapel on the hill",
                               "the mouth of the bay",
                               "the ruined wall"};
constexpr std::array kQualities = {"narrow", "crooked",  "shady",  "friendly", "lengthy",
                                   "steep",  "puzzling", "modest", "cheerful", "pleasant",
                                   "dusty",  "brief",    "solemn", "muddy",    "curious"};
constexpr std::array kStates = {
    "in the way",           "out of order",           "under a sheet",   "on the top shelf",
    "behind the staircase", "the pride of the house", "a mere nuisance", "at the auctioneer's"};
constexpr std::array kMoods = {"proud",  "silent", "cheerful", "uneasy", "patient",
                               "amused", "sorry",  "hopeful",  "vague",  "firm"};

struct Slot {
  std::string_view name;
  Words words;
};
constexpr std::array kSlots = {
    Slot{"time", kTimes},        Slot{"thing", kThings},       Slot{"did", kDeeds},
    Slot{"how", kManners},       Slot{"why", kReasons},        Slot{"weather", kWeathers},
    Slot{"claim", kClaims},      Slot{"question", kQuestions}, Slot{"view", kViews},
    Slot{"quality", kQualities}, Slot{"state", kStates},       Slot{"mood", kMoods}};

constexpr std::array kForms = {
    "{time}, {who} {did} {thing} {how}.",
    "{who} {did} {thing} {why}.",
    "At {place}, {who} and {other} {did} {thing} and said little about it.",
    "{other} thought that {thing} belonged at {place}, but {who} {did} it {how}.",
    "While {weather}, {other} {did} {thing}.",
    "It was said at {place} that {claim}.",
    "From {place} one could see {view}, and {time} it was a {quality} sight.",
    "Nobody had asked {who} {question}, and so {thing} stayed where it was.",
    "{thing} stood near {view} until {who} {did} it {time}.",
    "{time}, {weather}, and {other} stayed at {place} {how}.",
    "{who} used to say that {claim}, though {other} had never believed it.",
    "There was a {quality} path behind {place}, and {other} took it {time}.",
    "For years {thing} had been {state}, and {who} was {mood} about it.",
    "{other} wrote a {quality} note about {thing} and left it at {place}.",
    "By then {weather}, so {who} {did} {thing} first.",
    "What {other} remembered best was how {weather} {time}.",
    "{who} asked {other} {question}, and the answer took a {quality} while.",
    "Between {place} and {view} there was only a {quality} lane.",
    "{claim}, or so {other} told everybody {time}.",
    "{who} counted the steps to {view}, {did} {thing}, and went home {how}."};

struct Cast {
  std::string_view place, who, other;
};

std::string_view pick(Words words, RandomStream& random) {
  return words[random.below(static_cast<uint32_t>(words.size()))];
}

std::string_view word_for(std::string_view slot, const Cast& cast, RandomStream& random) {
  if (slot == "place") return cast.place;
  if (slot == "who") return cast.who;
  if (slot == "other") return cast.other;
  return pick(std::ranges::find(kSlots, slot, &Slot::name)->words, random);
}

// Each {slot} of the form becomes one of its words.
std::string sentence_from(std::string_view form, const Cast& cast, RandomStream& random) {
  std::string out;
  for (size_t at = 0; at < form.size();) {
    const size_t open = std::min(form.find('{', at), form.size());
    out += form.substr(at, open - at);
    if (open == form.size()) break;
    const size_t close = form.find('}', open);
    out += word_for(form.substr(open + 1, close - open - 1), cast, random);
    at = close + 1;
  }
  if (out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 'a' + 'A');
  return out;
}

Cast pick_cast(RandomStream& random) {
  const auto people = random.permutation(static_cast<uint32_t>(kPeople.size()));
  return {pick(kPlaces, random), kPeople[people[0]], kPeople[people[1]]};
}

// Paragraphs of five to eight sentences, each of another form.
std::string shipped_prose() {
  RandomStream random(0, Draw::kShippedText);
  std::unordered_set<std::string> said;
  std::string out;
  while (said.size() < kShippedSentences) {
    const Cast cast = pick_cast(random);
    const auto forms = random.permutation(static_cast<uint32_t>(kForms.size()));
    const uint32_t count = 5 + random.below(4);
    for (uint32_t i = 0; i < count; ++i) {
      const std::string sentence = sentence_from(kForms[forms[i]], cast, random);
      if (!said.insert(sentence).second) continue;
      if (!out.empty()) out += i == 0 ? "\n\n" : " ";
      out += sentence;
    }
  }
  return out + "\n";
}

}  // namespace

TextFile shipped_text() {
  TextDocument document;
  document.line = 1;
  document.text = shipped_prose();
  TextFile out;
  out.documents.push_back(std::move(document));
  out.raw = true;
  return out;
}

std::string shipped_text_sha256() {
  return base::sha256_hex(shipped_prose());
}

}  // namespace dex::evaluate
