-- The positions of a partition at which items stand, in order and a page of them at a time: those after a place, or the last
-- ones before one. A place is `partition-ms-sequence`; of equal positions that of the lower partition comes first.
-- NEEDS: log ready delayed deadlines handover ranked
--- @include partition positions ordering passed hints
local standing = {back = arg.backwards == '1', MOST = 5000}

-- The end of a range of the log: the position of the place, or what lies beyond it; with that position.
local function bound(place, beyond)
  local number, position = string.match(place, '^(%d+)%-(%d+%-%d+)$')
  if not position then return beyond, nil end
  local ours, theirs = tonumber(arg.number), tonumber(number)
  local with = beyond == '-' and ours > theirs or beyond == '+' and ours < theirs
  return (with and '' or '(') .. position, position
end

standing.from, standing.after = bound(arg.after, '-')
standing.to, standing.before = bound(arg.before, '+')

local function within(position)
  local after, before = standing.after, standing.before
  return (not after or positions.after(position, after) or (position == after and standing.from == after))
    and (not before or positions.after(before, position) or (position == before and standing.to == before))
end

local function log(from, count)
  local raws = standing.back and redis.call('XREVRANGE', key.log, standing.to, from, 'COUNT', count)
    or redis.call('XRANGE', key.log, from, standing.to, 'COUNT', count)
  for i, raw in ipairs(raws) do raws[i] = raw[1] end
  return raws
end

local function ready(count)
  if standing.back then
    local most = standing.before and positions.place(standing.before) or '+inf'
    return redis.call('ZREVRANGEBYSCORE', key.ready, most, '-inf', 'LIMIT', 0, count)
  end
  local least = standing.after and positions.place(standing.after) or '-inf'
  return redis.call('ZRANGEBYSCORE', key.ready, least, '+inf', 'LIMIT', 0, count)
end

-- Where items stand that have left the order of the log. Times and keys have another order than positions, so of these MOST
-- are looked through each time: of more than so many, beside what is kept, a page may pass some over.
local function elsewhere(count)
  local found = {ready(count), redis.call('ZRANGE', key.delayed, 0, standing.MOST - 1),
    redis.call('ZRANGE', key.deadlines, 0, standing.MOST - 1), ordering.waiting(standing.MOST), {},
    partition.selects and passed.after('', '', standing.MOST) or {}}
  local dying = redis.call('HSCAN', key.handover, 0, 'COUNT', standing.MOST)[2]
  for i = 1, #dying, 2 do found[5][#found[5] + 1] = dying[i] end
  local ranked = partition.hinted and redis.call('ZRANGE', key.ranked, 0, standing.MOST - 1) or {}
  for i, padded in ipairs(ranked) do ranked[i] = hints.unpadded(padded) end
  found[#found + 1] = ranked
  return found
end

-- Up to `count`, in the direction in which they are looked for. As long as nothing is kept that is done, these are entries of
-- the log. Else they are looked for where items stand, and past the cursor.
function standing.page(count)
  if partition.kept == 0 or partition.log_only then return log(standing.from, count) end
  local found, started = {}, standing.after and positions.after(standing.after, partition.cursor)
  for _, places in ipairs(elsewhere(count)) do
    for _, position in ipairs(places) do
      -- Past the cursor all that stands is found in the log.
      if within(position) and not positions.after(position, partition.cursor) then found[#found + 1] = position end
    end
  end
  for _, position in ipairs(log(started and standing.from or '(' .. partition.cursor, count)) do
    found[#found + 1] = position
  end
  table.sort(found, function(a, b)
    if standing.back then return positions.after(a, b) end
    return positions.after(b, a)
  end)
  for i = #found, count + 1, -1 do found[i] = nil end
  return found
end
