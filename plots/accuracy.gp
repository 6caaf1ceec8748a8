# Predicted against measured: a point for each, the line on which both are equal, those at 10 % from
# it; and a histogram of errors.
#
# quantity              what it is of, with its unit
# from, to              ends of both axes
# n_groups, key[i]      groups of points; block group1 is the first
# error_to, n_most      ends of the distribution's axes

array colour[8] = [blue, vermillion, green, orange, purple, sky, black, dark_grey]
array point[8] = [7, 5, 9, 11, 13, 6, 4, 8]

set logscale xy 10
set xrange [from:to]
set yrange [from:to]
set xlabel 'measured '.quantity
set ylabel 'predicted '.quantity
# 1, 2, 5 where the axis is short
if (to / from < 150) {
  set xtics (1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, \
    1000, 2000, 5000, '10k' 1e4, '20k' 2e4, '50k' 5e4, '100k' 1e5, '200k' 2e5, '500k' 5e5, '1M' 1e6)
  set ytics (1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, \
    1000, 2000, 5000, '10k' 1e4, '20k' 2e4, '50k' 5e4, '100k' 1e5, '200k' 2e5, '500k' 5e5, '1M' 1e6)
}

if (text) {
  set key outside above horizontal
  set lmargin 12
  set rmargin 4
  set samples 60
  plot x with points pointtype '.' title 'equal', \
       for [i = 1:n_groups] data index 'group'.i using 1:2 with points pointtype '*' \
         title (i == 1 ? 'predicted against measured' : '')
} else {
  set multiplot title figure_title
  unset title
  set lmargin at screen 0.09
  set rmargin at screen 0.745
  set bmargin at screen 0.43
  set tmargin at screen title_top
  set key at screen 0.765, screen title_top left top vertical reverse Left samplen 2 spacing 1.25
  plot x with lines linestyle 2 title 'equal', \
       1.1 * x with lines linecolor rgb grey linewidth 1 dashtype 2 title '10 % from it', \
       0.9 * x with lines linecolor rgb grey linewidth 1 dashtype 2 notitle, \
       for [i = 1:n_groups] data index 'group'.i using 1:2 with points \
         linecolor rgb colour[i] pointtype point[i] pointsize 0.7 title key[i]

  unset key
  unset logscale
  set bmargin at screen 0.115
  set tmargin at screen 0.295
  set xrange [-error_to:error_to]
  set yrange [0:n_most]
  set xlabel 'error of the prediction [% of the measured]'
  set ylabel 'how many'
  set xtics autofreq
  if (n_most < 6) { set ytics 1 } else { set ytics autofreq }
  set arrow 1 from 0, graph 0 to 0, graph 1 nohead front linestyle 2
  plot data index 'errors' using (($1 + $2) / 2):3:($2 - $1) with boxes \
    fillcolor rgb sky fillstyle solid 1.0 border rgb dark_grey
  unset multiplot
}
