# Draws the curves of loss-curves.sh as an SVG: a column of two panels for each group of methods, by steps above and by
# bytes below. Input: lines "GROUP|NAME|STEP|LOSS|BYTES", the curves of a method together. The first method is the
# measure of all others: it is drawn in every column.
#
#   awk -v steps=300 -f scripts/loss-curves.awk
BEGIN { FS = "|" }
{
  if (!($2 in points)) {
    name[++methods] = $2; group_of[$2] = $1
    if (!($1 in members)) group[++groups] = $1
    members[$1] = members[$1] $2 "|"
  }
  k = ++points[$2]; step[$2, k] = $3; loss[$2, k] = $4; bytes[$2, k] = $5
  if (low == "" || $4 < low) low = $4
  if (k > 2 && $4 > high) high = $4  # the first points are far above all others
  if ($5 > 0 && (least == "" || $5 < least)) least = $5
  if ($5 > most) most = $5
}

# The distance between round ticks, 1, 2 or 5 times a power of ten, of which a range has at most `count`.
function tick_step(range, count, power) {
  power = 10 ^ int(log(range / count) / log(10) - (range < count))
  return range <= count * power ? power : range <= 2 * count * power ? 2 * power : range <= 5 * count * power ? 5 * power : 10 * power
}
function amount(bytes) { return bytes < 1e9 ? sprintf("%g MB", bytes / 1e6) : sprintf("%g GB", bytes / 1e9) }
function x_of(row, at) { return left + width * (row == 0 ? at / steps : (log(at) - log(least)) / (log(most) - log(least))) }
function y_of(at) { return top + height * (high - at) / (high - low) }
function text(x, y, anchor, what, style) { printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y, anchor, style, what }
function line(x1, y1, x2, y2) { printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", x1, y1, x2, y2 }

function grid(row, labels, at, power) {
  for (at = low; at <= high + 1e-9; at += by) {
    line(left, y_of(at), left + width, y_of(at))
    if (labels) text(left - 6, y_of(at) + 4, "end", sprintf("%.1f", at), "")
  }
  if (row == 0) {
    for (at = 0; at <= steps; at += tick_step(steps, 4)) {
      line(x_of(0, at), top, x_of(0, at), top + height)
      text(x_of(0, at), top + height + 15, "middle", at, "")
    }
    return
  }
  for (power = 10 ^ int(log(least) / log(10)); power <= most; power *= 10)
    for (at = power; at < 4 * power; at += 2 * power)
      if (at >= least && at <= most) {
        line(x_of(1, at), top, x_of(1, at), top + height)
        if (at == power || most < 100 * least) text(x_of(1, at), top + height + 15, "middle", amount(at), "")
      }
}
function curve(row, of, colour, k, at, all) {
  for (k = 1; k <= points[of]; ++k) {
    at = row == 0 ? step[of, k] : bytes[of, k]
    if (loss[of, k] <= high && (row == 0 || at >= least)) all = all sprintf("%.1f,%.1f ", x_of(row, at), y_of(loss[of, k]))
  }
  print "<polyline fill=\"none\" stroke-width=\"1.6\" stroke=\"" colour "\" points=\"" all "\"/>"
}

END {
  # Told apart by people who see no red or no green too (Okabe and Ito's palette).
  split("#0072b2 #e69f00 #009e73 #d55e00 #cc79a7 #56b4e9 #999999", colours, " ")
  by = tick_step(high - low, 6); low = by * int(low / by); high = by * int(high / by + 0.999)
  if (most > 1000 * least) least = most / 1000  # methods that send nothing for long
  width = height = 205
  for (g = 1; g <= groups; ++g) if (members[group[g]] != name[1] "|") shown[++columns] = group[g]
  if (columns == 0) shown[++columns] = group[1]
  print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" 60 + columns * 235 "\" height=\"590\" font-family=\"sans-serif\" font-size=\"11\">"
  print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
  text(48, 22, "start", "Loss, mean of 10 steps: by steps above, by bytes that rank 0 has sent below", " font-size=\"14\"")
  for (column = 1; column <= columns; ++column) {
    left = 48 + (column - 1) * 235
    text(left, 48, "start", shown[column], " font-size=\"12\" font-weight=\"bold\"")
    count = split(members[shown[column]], of, "|") - 1
    for (row = 0; row < 2; ++row) {
      top = 58 + 265 * row
      grid(row, column == 1)
      curve(row, name[1], "#000000")
      for (m = shown[column] == group_of[name[1]] ? 2 : 1; m <= count; ++m) curve(row, of[m], colours[(m - 1) % 7 + 1])
      text(left + width / 2, top + height + 31, "middle", row == 0 ? "steps" : "sent by rank 0", "")
    }
    key = 0
    for (m = 0; m <= count; ++m) {
      if (m > 0 && of[m] == name[1]) continue
      printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"3\" fill=\"%s\"/>\n", left + 112, 68 + 15 * key, m == 0 ? "#000000" : colours[(m - 1) % 7 + 1]
      text(left + 133, 73 + 15 * key++, "start", m == 0 ? name[1] : of[m], "")
    }
  }
  print "</svg>"
}
