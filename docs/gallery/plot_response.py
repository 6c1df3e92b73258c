"""
The natural period of a learner
===============================

Its labels are excited at many periods at once, and a pole pair is fitted to what its predictions
do. A rhythm of half the natural period is what it resonates with.
"""

import resonax as rx

law = rx.Sinusoid(period=22, amplitude=0.5)
found = rx.response(rx.heavy_ball(lr=0.01, momentum=0.98), law, batch=20)
print(found)
figure = found.plot()
