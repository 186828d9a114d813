-- What partitions of one node tell each other of credit, by way of the frontends: who has items and no credit for them, and
-- who gives some of its own. `wants` lists those in need, the one longest in need first: their number and what is locked there.
-- NEEDS: turns ready log inflight
--- @include partition allotments ending owner
local lending = {gifts = {}}

-- Before what was freed is used here: whoever has less gets some of it, and whoever has nothing gets the last of it, so that no
-- partition starves while any subscriber has credit.
function lending.yield()
  local freed = ending.freed
  if not partition.several or arg.wants == '' or freed == 0 then return end
  local locked = redis.call('HLEN', key.inflight)
  for to, has in string.gmatch(arg.wants, '(%d+) (%d+)') do
    local has_less = tonumber(has) == 0 or locked + freed > tonumber(has) + 1
    if freed > 0 and to ~= arg.number and has_less then
      for _, gift in ipairs(allotments.gather(to, 1)) do lending.gifts[#lending.gifts + 1] = gift end
      freed = freed - 1
    end
  end
end

-- After the dispatch: how much credit is wanted here, how many subscribers have some to spare, how much is locked, what was
-- given away, whose subscription has ended here of itself, and who holds less now of what was beyond its credit here.
function lending.report()
  if not partition.several then return {} end
  local spare = redis.call('ZCARD', key.turns)
  local locked = redis.call('HLEN', key.inflight)
  local wanted, who = 0, owner.get()
  -- While the partition is owned nobody else's credit is of use here.
  if spare == 0 and not who and (partition.cursor ~= partition.tail or redis.call('EXISTS', key.ready) == 1) then
    wanted = math.min(allotments.MOST, math.max(1, redis.call('XLEN', key.log) - partition.kept - locked))
  end
  local owing = {}
  for _, subid in ipairs(ending.owing) do
    -- An owner's credit is nobody's to count.
    if not who or who.subid ~= subid then owing[#owing + 1] = subid end
  end
  return {wanted, spare, locked, lending.gifts, ending.ended, owing}
end
