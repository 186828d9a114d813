-- Priorities, 0 to 9, as ranks: 9 less the priority, so that what goes first sorts first. In `ranked` stands every item of another
-- than the usual priority, padded so that those of a rank sort as the log does; with `AWAY` more while it is in flight, delayed or
-- elsewhere. The cursor passes over them.
-- NEEDS: ranked
-- LAZY: where publishers ask for something
--- @include partition positions
local ranks = {USUAL = 5, LAST = 9, AWAY = 10}

-- Nil of an item of the usual priority.
function ranks.of(position)
  local score = redis.call('ZSCORE', key.ranked, positions.padded(position))
  return score and score % ranks.AWAY or nil
end

-- Whether anything waits there of these ranks.
function ranks.any(first, last)
  return redis.call('ZCOUNT', key.ranked, first, last) > 0
end
