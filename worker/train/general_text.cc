#include "worker/train/general_text.h"

#include <array>

namespace dex::train {
namespace {

constexpr std::array<std::string_view, 28> kGeneralTexts = {
    "The ferry left the harbour shortly before dawn. A thin fog lay over the water, and the lamps "
    "along the pier went out one after another as the light grew. On deck a woman in a grey coat "
    "unfolded a map, looked at the coast, and folded it again. She had made this journey every "
    "autumn for eleven years, and she still could not say which of the islands was the one.",
    "Water boils at a lower temperature on a mountain than at sea level, because the pressure of "
    "the air above it is smaller. At three thousand metres it boils at about ninety degrees "
    "Celsius. Eggs and rice therefore take longer to cook there, although the water bubbles just "
    "as strongly. A closed pot raises the pressure again and shortens the time.",
    "To repot a plant, choose a container that is two or three centimetres wider than the old "
    "one. Put a layer of soil on the bottom, loosen the roots with your fingers, and set the plant "
    "so that its stem starts at the same height as before. Fill the sides with soil, press it down "
    "gently, and water it until some runs out below. Keep it out of the sun for a week.",
    "\"Did you lock the door?\" she asked.\n\"I thought you did.\"\n\"I was carrying the boxes.\"\n"
    "He stopped the car, and for a moment neither of them said anything. Then she began to laugh. "
    "\"We have driven forty miles,\" she said. \"If anyone wanted to come in, they have had their "
    "tea by now.\"",
    "A bakery sells bread for 3.20 a loaf and rolls for 0.45 each. A customer buys two loaves and "
    "six rolls. The loaves cost 2 * 3.20 = 6.40, the rolls cost 6 * 0.45 = 2.70, and together that "
    "is 6.40 + 2.70 = 9.10. If she pays with a note of 20, she gets back 20 - 9.10 = 10.90.",
    "def average(values):\n    \"\"\"Return the arithmetic mean of a non-empty list of numbers."
    "\"\"\"\n    if not values:\n        raise ValueError(\"values must not be empty\")\n    total "
    "= "
    "0.0\n    for value in values:\n        total += value\n    return total / len(values)\n\n\n"
    "print(average([1, 2, 3, 4]))\n",
    "The council has approved the plan for a new library in the northern part of the town. "
    "Building is to begin in spring and to take about two years. The costs are estimated at nine "
    "million, of which the region pays a third. Several residents had asked for more places to "
    "park bicycles; the architect promised to change the drawings accordingly.",
    "Dear Sir or Madam,\n\nThank you for your letter of 4 May. I am sorry to hear that the lamp "
    "arrived broken. We have sent a new one today, and it should reach you within three working "
    "days. You do not need to return the damaged one. Please tell us if anything else is missing."
    "\n\nYours faithfully,\nCustomer Service",
    "Bees live in colonies of up to fifty thousand animals. Most of them are workers, which clean "
    "the hive, feed the young, build the combs, and, in the last weeks of their lives, fly out to "
    "gather nectar and pollen. A bee that has found a rich field tells the others by a dance: its "
    "direction shows where the flowers are, its speed how far away they stand.",
    "Question: Which is longer, a mile or a kilometre?\nAnswer: A mile. One mile is about 1.609 "
    "kilometres.\n\nQuestion: How many sides does a hexagon have?\nAnswer: Six.\n\nQuestion: Why "
    "does ice float on water?\nAnswer: Because water expands when it freezes, so ice is less dense "
    "than the liquid around it.",
    "The history of printing in Europe begins in the fifteenth century, when movable metal type "
    "made it possible to set a page, print it many times, and use the same letters for the next "
    "one. Books became cheaper within a few decades. More people learned to read, and scholars in "
    "distant cities could discuss the same text, down to the number of the page.",
    "Ingredients: 250 g flour, 125 g butter, 60 g sugar, one egg, a pinch of salt.\n1. Rub the "
    "cold "
    "butter into the flour.\n2. Add sugar, salt and egg and knead quickly to a smooth dough.\n3. "
    "Wrap it and let it rest in the refrigerator for an hour.\n4. Roll it out, cut it, and bake at "
    "180 degrees for twelve minutes.",
    "#include <stdio.h>\n\nint main(void) {\n  int sum = 0;\n  for (int i = 1; i <= 100; ++i) {\n  "
    " "
    " if (i % 3 == 0 || i % 5 == 0) sum += i;\n  }\n  printf(\"%d\\n\", sum);\n  return 0;\n}\n",
    "Regular sleep matters more than most people believe. Adults need between seven and nine hours "
    "a night, and it helps to go to bed at the same time every day, also at weekends. Bright light "
    "in the evening delays tiredness; so does coffee in the afternoon. Those who cannot sleep for "
    "several weeks should speak to a doctor.",
    "When the price of a good rises, people usually buy less of it, and producers offer more. The "
    "price at which both quantities are equal is called the equilibrium price. If a tax is added, "
    "buyers pay more than before and sellers receive less; who carries the larger part depends on "
    "how easily each side can turn to something else.",
    "Once there was a miller who had three sons. The eldest was strong, the second was clever, and "
    "the youngest listened. When the river dried up and the wheel stood still, the eldest tried to "
    "push it, the second tried to sell it, and the youngest walked up the valley to ask what had "
    "happened to the water.",
    "{\n  \"name\": \"window-3\",\n  \"width\": 120,\n  \"height\": 90,\n  \"open\": false,\n  "
    "\"sensors\": [\n    {\"type\": \"temperature\", \"value\": 21.5},\n    {\"type\": "
    "\"humidity\", "
    "\"value\": 0.43}\n  ]\n}\n",
    "Light needs about eight minutes from the sun to the earth, and a little more than four years "
    "from the nearest other star. When we look at distant galaxies we therefore see them as they "
    "were long ago. Telescopes are, in this sense, machines for looking into the past; the farther "
    "they reach, the younger is the universe that they show.",
    "The agreement may be ended by either party with three months' notice to the end of a calendar "
    "year. Notice must be given in writing. The right to end the agreement at once for good cause "
    "remains unaffected. Payments that were made in advance for the time after the end are to be "
    "returned within thirty days.",
    "Der Zug nach Norden hatte vierzig Minuten Verspätung, und auf dem Bahnsteig standen die Leute "
    "dicht gedrängt unter dem schmalen Dach. Es regnete seit dem frühen Morgen. Ein Kind zählte "
    "die Wagen eines Güterzugs, der langsam vorüberfuhr, und verlor bei siebenundzwanzig die Lust. "
    "Dann kam die Durchsage, dass der Zug heute auf Gleis neun fährt.",
    "Le marché ouvre à sept heures, mais les premiers vendeurs arrivent bien avant le lever du "
    "jour. Ils installent leurs tables, rangent les légumes par couleur et boivent un café debout. "
    "Vers midi, quand il ne reste plus que quelques salades, les prix baissent et les voisins "
    "reviennent avec leurs paniers.",
    "La biblioteca está en el centro del pueblo, junto a la plaza. Los lunes permanece cerrada; "
    "los "
    "demás días se puede entrar desde las nueve de la mañana. Para llevarse un libro a casa hace "
    "falta un carné, que es gratuito. Si alguien devuelve un libro tarde, paga una pequeña multa "
    "por cada semana.",
    "Il vecchio ponte di pietra fu costruito quando la valle non aveva ancora una strada. Ha tre "
    "archi, e quello di mezzo è più alto degli altri, perché in primavera il fiume porta a valle "
    "tronchi e ghiaccio. Oggi lo attraversano soltanto i pastori e, d'estate, qualche viaggiatore "
    "che si è perso.",
    "A casa fica no alto da colina e vê-se o mar de todas as janelas. No inverno o vento sopra com "
    "tanta força que é preciso fechar as portadas antes da noite. A avó dizia que, quando as "
    "gaivotas voam para terra, chove no dia seguinte, e quase sempre tinha razão.",
    "SELECT customer, COUNT(*) AS orders, SUM(amount) AS total\nFROM sales\nWHERE day >= "
    "'2020-01-01'\nGROUP BY customer\nHAVING COUNT(*) > 2\nORDER BY total DESC\nLIMIT 10;\n",
    "A triangle has sides of length 3, 4 and 5. Since 3 squared plus 4 squared is 9 + 16 = 25, and "
    "5 squared is 25 as well, the angle between the two shorter sides is a right angle. The area "
    "of the triangle is half the product of these sides, that is 3 * 4 / 2 = 6.",
    "Musicians tune their instruments to a common note before a concert. In an orchestra the oboe "
    "gives it, because its tone is steady and easy to hear. The strings follow, then the winds. A "
    "piano cannot be tuned quickly; if one takes part, everybody else has to follow it.",
    "User: Can you suggest a short walk near a lake for a family with a small child?\nAssistant: "
    "Look for a level path along the shore, no longer than three kilometres, with a playground or "
    "a café halfway. Take something to drink, a spare pair of socks, and a bag of oats for the "
    "ducks, which like them better than bread."};

}  // namespace

std::span<const std::string_view> general_texts() {
  return kGeneralTexts;
}

}  // namespace dex::train
