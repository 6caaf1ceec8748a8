# Memory against throughput: every plan a point, the best ones joined by a line and numbered.
#
# x_from, x_to, y_from, y_to    ranges of the axes
# left, right, bottom, top      edges of the plot, as parts of the picture
# n_front, n_others, n_unfit    how many points there are
# n_numbers                     numbers of the front's points: text output has them in place of points,
#                               pictures above and left of the points, where no plan can be
# numbers_above, numbers_below  lines beside the plot of a text
# capacity, capacity_key        of the device, GiB, 0: not known; and in words
# memory                        which memory it is

set xrange [x_from:x_to]
set yrange [y_from:y_to]
set xlabel memory.' [GiB]'
set ylabel 'throughput [tokens/s per GPU]'

if (capacity > 0) {
  set arrow 1 from capacity, graph 0 to capacity, graph (text ? 0.97 : 1) nohead front linecolor rgb black linewidth 1.2 dashtype 2
}

if (text) {
  unset key
  set lmargin 12
  set rmargin 4
  set tmargin numbers_above
  set bmargin numbers_below
  plot for [i = 1:n_others > 0] data index 'others' using 1:2 with points pointtype '.', \
       for [i = 1:n_unfit > 0] data index 'unfit' using 1:2 with points pointtype 'x', \
       for [i = 1:capacity > 0] NaN with points pointtype '|', \
       for [i = 1:n_numbers > 0] data index 'numbers' using 1:2:3 with labels
} else {
  set lmargin at screen left
  set rmargin at screen right
  set bmargin at screen up (bottom)
  set tmargin at screen up (top)
  set key at screen left, screen up (0.045) left horizontal reverse Left samplen 2.5 maxrows 1
  plot for [i = 1:n_others > 0] data index 'others' using 1:2 with points \
         pointtype 7 pointsize 0.5 linecolor rgb grey title 'other plans', \
       for [i = 1:n_unfit > 0] data index 'unfit' using 1:2 with points \
         pointtype 2 pointsize 0.7 linecolor rgb vermillion title 'does not fit', \
       for [i = 1:n_front > 0] data index 'front' using 1:2 with linespoints \
         pointtype 7 pointsize 0.8 linewidth 1.5 linecolor rgb blue title 'best for its memory', \
       for [i = 1:capacity > 0] NaN with lines linecolor rgb black linewidth 1.2 dashtype 2 \
         title capacity_key, \
       for [i = 1:n_numbers > 0] data index 'numbers' using 1:2:3 with labels right \
         offset character -0.5, 0.5 notitle
}
