# Memory against step time as fields vary: a line along the first, its values beside the points.
#
# x_from, x_to, y_from, y_to    ranges of the axes
# left, right, bottom, top      edges of the plot, as parts of the picture
# n_lines, key[i]               the lines and what they have in common; block line1 is the first
# n_left, n_right               whether there are labels on that side of a point
# numbers_above, numbers_below  lines beside the plot of a text
# time_unit, memory_unit        of the axes
# capacity, capacity_key        of the device, 0: not drawn; and in words

array colour[8] = [blue, vermillion, green, orange, purple, sky, black, dark_grey]
array point[8] = [7, 5, 9, 11, 13, 6, 4, 8]
array dash[8] = [1, 4, 5, 2, 1, 4, 5, 2]

set xrange [x_from:x_to]
set yrange [y_from:y_to]
set xlabel 'step time ['.time_unit.']'
set ylabel 'device memory ['.memory_unit.']'
if (capacity > 0) {
  set arrow 1 from graph 0, first capacity to graph (text ? 0.99 : 1), first capacity nohead front \
    linecolor rgb black linewidth 1.2 dashtype 2
}

if (text) {
  unset key
  set lmargin 12
  set rmargin 4
  set tmargin numbers_above
  set bmargin numbers_below
  plot data index 'numbers' using 1:2:3 with labels
} else {
  set lmargin at screen left
  set rmargin at screen right
  set bmargin at screen bottom
  set tmargin at screen top
  set key at screen left, screen 0.085 left top horizontal reverse Left samplen 3 spacing 1.3 maxcols 4
  plot for [i = 1:n_lines] data index 'line'.i using 1:2 with linespoints linewidth 1.5 \
         linecolor rgb colour[i] dashtype dash[i] pointtype point[i] pointsize 0.9 \
         title (strlen (key[i]) ? key[i] : 'plans'), \
       for [i = 1:capacity > 0] NaN with lines linecolor rgb black linewidth 1.2 dashtype 2 \
         title capacity_key, \
       for [i = 1:n_left] data index 'left' using 1:2:3 with labels right notitle, \
       for [i = 1:n_right] data index 'right' using 1:2:3 with labels left notitle
}
