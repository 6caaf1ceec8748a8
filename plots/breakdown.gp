# Where step time and memory of several plans go: a bar each, time on the left, memory on the right.
#
# n_plans, label[i]                     rows, from the bottom
# n_time, time[i], time_place[i]        parts of the step that occur: their blocks, and colours
# n_memory, memory[i], memory_place[i]  likewise of the memory
# time_unit, memory_unit                of the axes
# time_to, memory_to                    their ends
# capacity, capacity_key                of the device, 0: not drawn; and in words

# Neighbours differ in lightness, too. Colours of memory are those of memory.gp.
array time_colour[7] = [blue, orange, vermillion, yellow, green, grey, light_grey]
array memory_colour[11] = [sky, blue, grey, orange, light_grey, green, yellow, vermillion, purple, \
  dark_grey, '#FFFFFF']

set multiplot title figure_title
unset title
set tmargin at screen up (title_top)
set bmargin at screen up (0.31)
set yrange [-0.5:n_plans - 0.5]
set ytics scale 0 ('' 0)
set for [i = 1:int(n_plans)] ytics add (label[i] i - 1)
set grid noytics
set style fill solid 1.0 border rgb dark_grey
half = 0.34

unset key
set lmargin at screen 0.215
set rmargin at screen 0.58
set xrange [0:time_to]
set xlabel 'step time ['.time_unit.']'
plot for [i = 1:n_time] data index time[i] using 1:3:1:2:($3 - half):($3 + half) with boxxyerror \
       linewidth 0.4 fillcolor rgb time_colour[time_place[i]], \
     data index 'totals' using (time_to):3:(sprintf('%.2f', $1)) with labels right offset -0.3, 0

set lmargin at screen 0.615
set rmargin at screen 0.98
unset label # the list is there
set xrange [0:memory_to]
set xlabel 'device memory at its fullest ['.memory_unit.']'
unset ytics
if (capacity > 0) {
  set arrow 1 from capacity, graph 0 to capacity, graph 1 nohead front linecolor rgb black \
    linewidth 1.5 dashtype 2
}
plot for [i = 1:n_memory] data index memory[i] using 1:3:1:2:($3 - half):($3 + half) with boxxyerror \
       linewidth 0.4 fillcolor rgb memory_colour[memory_place[i]], \
     data index 'totals' using (memory_to):3:(sprintf('%.2f', $2)) with labels right offset -0.3, 0

# a key for each, as wide as there is room
unset arrow
unset border
unset tics
unset xlabel
unset grid
set xrange [0:1]
set yrange [0:1]
set lmargin at screen 0.02
set rmargin at screen 0.36
set key at screen 0.02, screen up (0.17) left top horizontal reverse Left samplen 1 spacing 1.25 maxcols 2
plot for [i = 1:n_time] NaN with boxes fillcolor rgb time_colour[time_place[i]] title time[i]
set lmargin at screen 0.38
set rmargin at screen 1
set key at screen 0.38, screen up (0.17) left top horizontal reverse Left samplen 1 spacing 1.25 maxcols 3
plot for [i = 1:n_memory] NaN with boxes fillcolor rgb memory_colour[memory_place[i]] title memory[i], \
     for [i = 1:capacity > 0] NaN with lines linecolor rgb black linewidth 1.5 dashtype 2 \
       title capacity_key
unset multiplot
