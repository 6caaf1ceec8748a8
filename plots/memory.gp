# Live memory over a step: categories stacked and their total as a line; in text, the stack made of
# letters. The measured total is points.
#
# to, top, unit            ends of the axes; the unit of memory
# n_categories             those that occur, bottom one first
# key[i], kind[i]          name of each, and its place among the colours
# peak_at, peak, peak_label, peak_side     the fullest moment; the side its label goes to
# measured                 whether there are measured points
# text_margin              columns that numbers have beside a text
#
# Columns of the data: time, total, then for each category its size and the top of its band. Steps
# have both their corners.

# Neighbours differ in lightness, too.
array colour[10] = [sky, blue, grey, orange, light_grey, green, yellow, vermillion, purple, dark_grey]

set xrange [0:to]
set yrange [0:top]
set xlabel 'time from the start of the step [ms]'
set ylabel 'live memory ['.unit.']'

if (text) {
  set lmargin text_margin
  set rmargin 2
  set tmargin 3
  set bmargin 3
  unset key
  set label 1 peak_label at peak_at, peak @peak_side offset character 0, 1 front
  plot data index 'letters' using 1:2:3 with labels left notitle, \
       for [i = 1:measured] data index 'measured' using 1:2 with points pointtype '*' notitle
} else {
  set key outside right center vertical reverse Left samplen 1.2 spacing 1.25
  set label 1 peak_label at peak_at, peak @peak_side \
    offset character (peak_side eq 'right' ? -0.8 : 0.8), 0.8 \
    front point pointtype 7 pointsize 0.7 linecolor rgb black
  plot for [i = n_categories:1:-1] data index 'simulated' using 1:2 * i + 2 \
         with filledcurves y1=0 linecolor rgb colour[kind[i]] title key[i], \
       data index 'simulated' using 1:2 with lines linestyle 2 title 'total, simulated', \
       for [i = 1:measured] data index 'measured' using 1:2 with points linestyle 3 \
         title 'total, measured'
}
