-- Priorities, 0 to 9, as ranks: 9 less the priority, so that what goes first sorts first. In `ranked` stands every item of another
-- than the usual priority, padded so that those of a rank sort as the log does; with `AWAY` more while it is in flight, delayed or
-- elsewhere. The cursor passes over them.
-- NEEDS: ranked
--- @include partition positions
local ranks = {USUAL = 5, LAST = 9, AWAY = 10}

-- Nil of an item of the usual priority.
function ranks.of(position)
  local score = partition.hinted and redis.call('ZSCORE', key.ranked, positions.padded(position))
  return score and score % ranks.AWAY or nil
end

-- Whether anything waits there of these ranks.
function ranks.any(first, last)
  return partition.hinted and redis.call('ZCOUNT', key.ranked, first, last) > 0
end

-- A text of digits that sorts as items are to go out. A padded position begins with seven zeros and a digit that is none.
function ranks.padded(position)
  local rank, padded = ranks.of(position), positions.padded(position)
  if not rank then return padded end
  return (rank < ranks.USUAL and '00000000' or '') .. rank .. padded
end
