# Streams of one step: a row each, its ops as boxes; below the simulated ones, if there are any, the
# measured ones. In text, letters.
#
# from, to            the window, ms
# rows                streams; set ytics has named them
# n_groups            kinds of op that occur
# group[i], key[i], line[i]   their block in the data, name, and line type
# measured            whether there are measured boxes
# text_margin         columns that names of rows have

set linetype 1 linecolor rgb blue
set linetype 2 linecolor rgb sky
set linetype 3 linecolor rgb yellow
set linetype 4 linecolor rgb purple
set linetype 5 linecolor rgb orange
set linetype 6 linecolor rgb vermillion
set linetype 7 linecolor rgb green
set linetype 8 linecolor rgb black
set linetype 9 linecolor rgb dark_grey
set linetype 10 linecolor rgb light_grey
set linetype 11 linecolor rgb grey

set xrange [from:to]
set yrange [-0.5:rows - 0.5]
set xlabel 'time from the start of the step [ms]'.(measured > 0 && !text ? '; predicted above, measured below' : '')
set ytics scale 0
set grid noytics

if (text) {
  set lmargin text_margin
  set rmargin 2
  unset key
  plot data index 'letters' using 1:2:3 with labels left notitle
} else {
  set bmargin 7
  set xlabel offset 0, 0.3
  set key at graph 0, screen 0.1 left top horizontal reverse Left samplen 1 spacing 1.3
  set for [i = 1:int(rows) - 1] arrow i from graph 0, first i - 0.5 to graph 1, first i - 0.5 \
    nohead linestyle 1
  plot for [i = 1:n_groups] data index group[i] using 1:3:1:2:3:4 with boxxyerror \
         linetype line[i] title key[i], \
       for [i = 1:measured] data index 'measured' using 1:3:1:2:3:4:5 with boxxyerror \
         linecolor variable notitle
}
