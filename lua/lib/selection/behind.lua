-- Who, of those that select, has not examined all that was passed over: subid -> mark, the padded place up to which it has. Who is not
-- named here has, and need be asked only when something comes that meets its conditions.
-- CALL: marks = nil, stored = {}, kept = {}, met = {}, standing = {}
-- `met` has the items passed over in this script that still stand, by position: their place, and the set of those whom they may be
-- for; `standing` is how many there are for each of these. `kept` are those to be written in any case.
local behind = {}

local function marks()
  if not call.behind_marks then
    call.behind_marks = {}
    local found = redis.call('HGETALL', key.behind)
    for i = 1, #found, 2 do call.behind_marks[found[i]], call.behind_stored[found[i]] = found[i + 1], found[i + 1] end
  end
  return call.behind_marks
end

-- Nil of one who has examined all.
function behind.mark(subid)
  return marks()[subid]
end

function behind.set(subid, mark)
  marks()[subid] = mark
end

-- There is something noted for it.
function behind.keep(subid, mark)
  behind.set(subid, mark)
  call.behind_kept[subid] = true
end

-- An item has been passed over that may be for these.
function behind.meet(position, place, by)
  call.behind_met[position] = {place = place, by = by}
  for subid in pairs(by) do call.behind_standing[subid] = (call.behind_standing[subid] or 0) + 1 end
end

-- It stands there no more: whoever has fallen behind by it alone has not.
function behind.part(position)
  local item = call.behind_met[position]
  if not item then return end
  call.behind_met[position] = nil
  for subid in pairs(item.by) do
    local standing = call.behind_standing[subid] - 1
    call.behind_standing[subid] = standing
    if standing == 0 and not (call.behind_stored[subid] or call.behind_kept[subid]) then behind.set(subid, nil) end
  end
end

-- In the order of their names.
function behind.all()
  local found = {}
  for subid in pairs(marks()) do found[#found + 1] = subid end
  table.sort(found)
  return found
end

-- It has a new selector, and has examined nothing; or none any more.
function behind.begin(subid, selects)
  marks()[subid], call.behind_stored[subid] = selects and '' or nil, selects and '' or nil
  if selects then redis.call('HSET', key.behind, subid, '') else redis.call('HDEL', key.behind, subid) end
end

-- Those who have not examined something that was passed over in this script, may be for them, and still stands.
local function left()
  local found = {}
  for _, item in pairs(call.behind_met) do
    for subid in pairs(item.by) do
      local mark = call.behind_marks[subid]
      if mark and mark < item.place then found[subid] = true end
    end
  end
  return found
end

-- Writes what this script has changed: nobody falls behind by what has been taken at once.
function behind.save()
  if not call.behind_marks then return end
  local lack = left()
  for subid, mark in pairs(call.behind_marks) do
    local stored = call.behind_stored[subid]
    if mark ~= stored and (stored or call.behind_kept[subid] or lack[subid]) then writes.add('HSET', key.behind, subid, mark) end
  end
  for subid in pairs(call.behind_stored) do
    if not call.behind_marks[subid] then writes.add('HDEL', key.behind, subid) end
  end
end
