# Throughput and efficiency against the number of GPUs: a line for each strategy; dashed, linear
# scaling.
#
# n_lines, key[i]          the lines and their names; block line1 is the first
# from, to                 numbers of GPUs; set xtics has named them
# total_from, total_to     tokens/s of all GPUs
# per_gpu_to               tokens/s of each
# efficiency_to            percent of the throughput per GPU at the line's smallest size

array colour[8] = [blue, vermillion, green, orange, purple, sky, black, dark_grey]
array point[8] = [7, 5, 9, 11, 13, 6, 4, 8]
array dash[8] = [1, 4, 5, 2, 1, 4, 5, 2]

set multiplot title figure_title
unset title
set xrange [from:to]
set logscale x 2
set xlabel 'GPUs'
set bmargin at screen 0.26
set tmargin at screen title_top
set style line 20 linecolor rgb grey linewidth 1 dashtype 3

# all GPUs
unset key
set lmargin at screen 0.08
set rmargin at screen 0.32
set logscale y 10
set yrange [total_from:total_to]
set ylabel 'throughput [tokens/s]'
set ytics (1e2, 2e2, 5e2, 1e3, 2e3, 5e3, '10k' 1e4, '20k' 2e4, '50k' 5e4, '100k' 1e5, '200k' 2e5, \
  '500k' 5e5, '1M' 1e6, '2M' 2e6, '5M' 5e6, '10M' 1e7, '20M' 2e7, '50M' 5e7, '100M' 1e8)
plot for [i = 1:n_lines] data index 'line'.i using 1:5 with lines linestyle 20, \
     for [i = 1:n_lines] data index 'line'.i using 1:2 with linespoints linewidth 1.5 \
       linecolor rgb colour[i] dashtype dash[i] pointtype point[i] pointsize 0.8

# each of them
unset logscale y
set lmargin at screen 0.415
set rmargin at screen 0.655
set yrange [0:per_gpu_to]
set ytics autofreq
set ylabel 'throughput [tokens/s per GPU]'
plot for [i = 1:n_lines] data index 'line'.i using 1:3 with linespoints linewidth 1.5 \
       linecolor rgb colour[i] dashtype dash[i] pointtype point[i] pointsize 0.8

# efficiency
set lmargin at screen 0.745
set rmargin at screen 0.985
set yrange [0:efficiency_to]
set ylabel 'efficiency [% of the smallest size]'
plot 100 with lines linestyle 20, \
     for [i = 1:n_lines] data index 'line'.i using 1:4 with linespoints linewidth 1.5 \
       linecolor rgb colour[i] dashtype dash[i] pointtype point[i] pointsize 0.8

# the key, as wide as all three
unset logscale
unset border
unset tics
unset xlabel
unset ylabel
unset grid
set lmargin at screen 0.04
set rmargin at screen 0.98
set xrange [0:1]
set yrange [0:1]
set key at screen 0.04, screen 0.12 left top horizontal reverse Left samplen 3 spacing 1.25 maxcols 4
plot for [i = 1:n_lines] NaN with linespoints linewidth 1.5 linecolor rgb colour[i] dashtype dash[i] \
       pointtype point[i] pointsize 0.8 title key[i], \
     NaN with lines linestyle 20 title 'linear scaling'
unset multiplot
