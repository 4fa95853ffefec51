package suite

import (
	"fmt"
	"regexp"
	"time"

	"unnest/internal/measure/result"
)

// x264 is pts/x264: 600 frames of 704×576, here ten times the same 60. Frames are
// noise that moves.
func x264(n processors) Case {
	return Case{
		Suite: n.suite, Name: n.suite + "-x264", Title: "H.264 encoding",
		Package: "x264", Tools: []string{"x264", "perl"}, Metrics: []result.Metric{rate("throughput", "frames/s")},
		Prepare: func(p Profile, _ Resources) string {
			return fmt.Sprintf(x264Frames, pick(p, "352 288 8", "704 576 60"))
		},
		Run: func(p Profile, r Resources) string {
			return fmt.Sprintf("{ cat header; for ((i = 0; i < %d; i++)); do cat frames; done; } |"+
				" x264 --no-progress --demuxer y4m --threads %d -o /dev/null - 2>&1\n", pick(p, 1, 10), n.count(r))
		},
		Parse: number("throughput", `(?m)^encoded \d+ frames, ([\d.]+) fps, `),
		Wall:  wall(15*time.Second, 15*time.Minute),
	}
}

// x264Frames makes the two parts of a YUV4MPEG2 file: its header, and its frames.
const x264Frames = `perl - %s <<'END'
my ($width, $height, $frames) = @ARGV;
srand 1;
my $noise = join '', map { chr 96 + int rand 64 } 1 .. 2 * $width * $height;
open my $header, '>', 'header' or die;
print $header "YUV4MPEG2 W$width H$height F25:1 Ip A1:1 C420jpeg\n";
open my $file, '>', 'frames' or die;
for my $i (0 .. $frames - 1) {
    print $file "FRAME\n", substr($noise, $i * ($width + 3), $width * $height), substr($noise, $i * 5, $width * $height / 2);
}
END
`

// melody returns a script that makes a file called melody.wav of so many seconds:
// stereo of 44.1 kHz, tones that fade, with noise.
func melody(quick, paper int) Script {
	return func(p Profile, _ Resources) string {
		return fmt.Sprintf(`perl - %d >melody.wav <<'END'
srand 1;
my $samples = 44100 * shift;
print pack 'a4Va4a4VvvVVvva4V', 'RIFF', 36 + 4 * $samples, 'WAVE', 'fmt ', 16, 1, 2, 44100, 176400, 4, 16, 'data', 4 * $samples;
for my $i (0 .. $samples - 1) {
    my $tone = 9000 * (1 - $i %% 11025 / 11025) * sin 0.0157 * $i * (1 + int($i / 11025) %% 5);
    print pack 'ss', $tone + rand 2000, $tone / 2 + rand 3000;
}
END
`, pick(p, quick, paper))
	}
}

// lame is pts/encode-mp3.
func lame() Case {
	c := timedCase("cpu", "lame", "MP3 encoding", func(Profile, Resources) string {
		return "lame --quiet -h melody.wav /dev/null\n"
	}, 10*time.Second)
	c.Tools, c.Prepare = []string{"lame", "perl"}, melody(2, 210)
	return c
}

// flac is pts/encode-flac.
func flac() Case {
	c := timedCase("cpu", "flac", "FLAC encoding", func(Profile, Resources) string {
		return "flac --silent --best -c melody.wav >/dev/null\n"
	}, 5*time.Second)
	c.Tools, c.Prepare = []string{"flac", "perl"}, melody(6, 210)
	return c
}

// povray is pts/povray, with a scene of our own that has most of what the
// standard one has: the standard one cannot be made small.
func povray(n processors) Case {
	c := timedCase(n.suite, "povray", "Ray tracing",
		n.command("povray +Iscene.pov -D -F +W32 +H24 +WT%d >/dev/null 2>&1\n", "povray +Iscene.pov -D -F +W512 +H512 +A0.3 +WT%d >/dev/null 2>&1\n"),
		15*time.Second)
	c.Prepare = func(Profile, Resources) string { return "cat >scene.pov <<'END'\n" + povrayScene + "END\n" }
	return c
}

const povrayScene = `#version 3.7;
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
`

// graphicsMagick are the five operations of pts/graphics-magick, 60 s each in the
// paper's profile, on an image of 12 megapixels.
func graphicsMagick(n processors) []Case {
	cases := make([]Case, 0, 5)
	for _, c := range []struct{ name, title, operation string }{
		{"hwb", "Image to the HWB color space", "-colorspace HWB"},
		{"threshold", "Local adaptive thresholding of an image", "-lat 10x10-5%"},
		{"blur", "Blurring of an image", "-blur 0x1.0"},
		{"resize", "Resizing of an image", "-resize 50%"},
		{"sharpen", "Sharpening of an image", "-sharpen 0x1.0"},
	} {
		cases = append(cases, Case{
			Suite: n.suite, Name: n.suite + "-gm-" + c.name, Title: c.title,
			Package: "graphicsmagick", Tools: []string{"gm", "perl"}, Metrics: []result.Metric{rate("throughput", "iterations/min")},
			Prepare: noiseImage,
			Run: func(p Profile, r Resources) string {
				return fmt.Sprintf("OMP_NUM_THREADS=%d gm benchmark -duration %d convert image.ppm %s null: 2>&1\n",
					n.count(r), pick(p, 1, 60), c.operation)
			},
			Parse: numbers(field{"throughput", regexp.MustCompile(`(?m)^Results: \d+ threads \d+ iter \S+ user \S+ total ([\d.]+) iter/s `), 60}),
			Wall:  wall(3*time.Second, 61*time.Second),
		})
	}
	return cases
}

// noiseImage makes image.ppm: rows of the same noise, each moved.
func noiseImage(p Profile, _ Resources) string {
	return fmt.Sprintf(`perl - %s >image.ppm <<'END'
my ($width, $height) = @ARGV;
srand 1;
my $noise = join '', map { chr rand 256 } 1 .. 6 * $width;
print "P6\n$width $height\n255\n", map { substr $noise, 7 * $_ %% (3 * $width), 3 * $width } 1 .. $height;
END
`, pick(p, "640 480", "4288 2848"))
}
