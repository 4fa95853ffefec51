#version 3.7;
global_settings { assumed_gamma 1.0 max_trace_level 8 }
camera { location <0, 2, -6> look_at <0, 1, 0> }
light_source { <5, 8, -6> rgb 1 area_light <1, 0, 0>, <0, 1, 0>, 3, 3 adaptive 1 }
light_source { <-6, 5, -4> rgb 0.4 }
plane { y, 0 pigment { checker rgb 1, rgb 0.2 } finish { reflection 0.2 } }
#declare S = seed(1);
#for (I, 1, 40)
  sphere { <rand(S) * 8 - 4, rand(S) * 3, rand(S) * 6 - 1>, 0.2 + rand(S) * 0.4
    pigment { rgbt <rand(S), rand(S), rand(S), 0.4 * mod(I, 2)> }
    finish { phong 0.9 reflection 0.3 } interior { ior 1.4 } }
#end
isosurface { function { x*x + y*y + z*z - 1 + 0.1 * sin(12*x) * sin(12*y) * sin(12*z) }
  contained_by { sphere { 0, 1.2 } } max_gradient 6 translate <0, 1.2, 0> pigment { granite } }
