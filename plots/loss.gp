# Losses of training runs by step: a line each, and points where a run was evaluated.
#
# n_steps           from the first to the last
# n_runs, key[i]    the runs and their names; block run1 has the losses of the first
# n_evaluated       how many of them were evaluated
# evaluated[k]      which those are; block eval1 has the evaluations of run 1

array colour[8] = [blue, vermillion, green, orange, purple, sky, black, dark_grey]
array point[8] = [7, 5, 9, 11, 13, 6, 4, 8]
array dash[8] = [1, 4, 5, 2, 1, 4, 5, 2] # where a line covers another one, that shows in its gaps
array letter[8] = ['*', '+', 'x', '#', 'o', '@', '%', '=']
array evaluation[8] = ['E', 'F', 'G', 'H', 'I', 'J', 'K', 'L']

set xlabel 'step'
set ylabel 'loss per token'
set offsets graph 0.02, graph 0.02, graph 0.05, graph 0.05
set autoscale xfix
if (n_steps < 20) { set xtics 1 } # no half steps

if (text) {
  set key outside above vertical left Left reverse
  set lmargin 12
  plot for [i = 1:n_runs] data index 'run'.i using 1:2 with points pointtype letter[i] title key[i], \
       for [k = 1:n_evaluated] data index 'eval'.evaluated[k] using 1:2 with points \
         pointtype evaluation[k] title 'evaluations of '.key[evaluated[k]]
} else {
  set lmargin at screen 0.08
  set rmargin at screen 0.97
  set bmargin at screen 0.22
  set key at screen 0.08, screen 0.095 left top horizontal reverse Left samplen 3 spacing 1.3 maxcols 2
  plot for [i = 1:n_runs] data index 'run'.i using 1:2 with lines linewidth 1.2 \
         linecolor rgb colour[i] dashtype dash[i] title key[i], \
       for [i = 1:n_steps < 20 ? n_runs : 0] data index 'run'.i using 1:2 with points \
         linecolor rgb colour[i] pointtype 7 pointsize 0.7 notitle, \
       for [k = 1:n_evaluated] data index 'eval'.evaluated[k] using 1:2 with points \
         linecolor rgb colour[evaluated[k]] pointtype point[evaluated[k]] pointsize 0.9 \
         title 'evaluations of '.key[evaluated[k]]
}
