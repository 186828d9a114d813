-- Rates: how many items may pass in a time. A rule is `items period_ms burst`. One number is kept of each rate (GCRA): when all that passed
-- would have passed at an even pace, in microseconds of Redis's time. It lies at most a burst ahead of the clock; without a number, a whole
-- burst may pass at once. A burst of 0 is one item and those of a second: as much as a late sweep may have to make up for.
local rate_limit = {LATE_MICROS = 1000000}

function rate_limit.read(rule)
  local count, period, burst = string.match(rule, '^(%d+) (%d+) (%d+)$')
  local interval = period * 1000 / count
  return {interval = interval, burst = burst ~= '0' and tonumber(burst) or 1 + rate_limit.LATE_MICROS / interval}
end

-- Reads bounds, the text `most items period_ms burst`: the most at once and the rate, each nil for none, which is 0 in the text.
function rate_limit.bounds(text)
  local most, rule = string.match(text, '^(%d+) (.*)$')
  return {most = most ~= '0' and tonumber(most) or nil, rate = string.sub(rule, 1, 2) ~= '0 ' and rate_limit.read(rule) or nil}
end

-- Returns the number between the clock and a burst ahead of it: further ahead it is only after the clock was set back, and then the burst
-- is used up as of now.
function rate_limit.clamp(rate, at)
  local now = call.partition_micros
  return math.max(now, math.min(tonumber(at or 0), now + rate.burst * rate.interval))
end

-- Returns how many may pass now; a microsecond is for rounding.
function rate_limit.room(rate, at)
  local ahead = rate_limit.clamp(rate, at) - call.partition_micros
  return math.max(0, math.floor(math.min(rate.burst, rate.burst - (ahead - 1) / rate.interval)))
end

-- Returns the number after `count` more have passed, as a text that loses nothing; a negative count gives back.
function rate_limit.after(rate, at, count)
  return string.format('%.17g', rate_limit.clamp(rate, at) + count * rate.interval)
end

-- Returns when the next may pass, in ms, with the same rounding.
function rate_limit.next_ms(rate, at)
  return math.ceil((rate_limit.clamp(rate, at) + (1 - rate.burst) * rate.interval - 1) / 1000)
end
