# What all figures share. Colours are Okabe and Ito's, which people with any kind of colour vision
# tell apart, and which keep an order of lightness when printed in grey.
black      = '#000000'
orange     = '#E69F00'
sky        = '#56B4E9'
green      = '#009E73'
yellow     = '#F0E442'
blue       = '#0072B2'
vermillion = '#D55E00'
purple     = '#CC79A7'
grey       = '#999999'
light_grey = '#D0D0D0'
dark_grey  = '#4D4D4D'

set encoding utf8
set title figure_title offset 0,-0.3
set border 3 linecolor rgb dark_grey linewidth 0.8
set tics nomirror out scale 0.6
set format '%.10g' # without the space that puts numbers beside their tics
set style fill solid 1.0 noborder
set style line 1 linecolor rgb light_grey linewidth 0.5      # grid
set style line 2 linecolor rgb black linewidth 1.2           # simulated
set style line 3 linecolor rgb black linewidth 1 pointtype 6 pointsize 0.5 # measured
set grid linestyle 1
if (text) { unset grid; set tics in }
